"""Turn a llama GGUF file into a Hugging Face folder of bfloat16 safetensors.

Runs in the engine's Python, alone: it needs gguf, numpy, safetensors, torch and transformers, and
nothing of ours. vLLM on a CPU reads safetensors only, and transformers can load a GGUF file but
not save what it loaded, so the weights are mapped here, name by name.

Reads from standard input one JSON object, `{"gguf": PATH, "folder": PATH, "question": TEXT}`;
writes the folder; prints one JSON object, `{"tensors": N, "parameters": N, "answer": TEXT}`, where
`answer` is what the converted model says to the question when decoded greedily.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig

WHOLE_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hugging_face_name(name: str) -> str:
    """Give the Hugging Face name of a GGUF tensor; KeyError for one that has none."""
    if name in WHOLE_NAMES:
        return WHOLE_NAMES[name]
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if layer is None:
        raise KeyError(name)
    return f"model.layers.{layer[1]}.{LAYER_NAMES[layer[2]]}.weight"


def unpermute(weight: np.ndarray, heads: int) -> np.ndarray:
    """Undo the row order that llama.cpp gives to the query and key projections.

    llama.cpp interleaves the two halves of each head's rotary dimensions; Hugging Face keeps them
    one after the other.

    Args:
        weight: [heads * head_size, hidden].
        heads: heads of this projection (query heads, or key heads).
    """
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def read_config(field: dict[str, Any], tied: bool) -> LlamaConfig:
    """Build the model's configuration from the GGUF file's own description."""
    heads = field["llama.attention.head_count"]
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=field["llama.vocab_size"],
        hidden_size=field["llama.embedding_length"],
        intermediate_size=field["llama.feed_forward_length"],
        num_hidden_layers=field["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=field["llama.attention.head_count_kv"],
        head_dim=field["llama.embedding_length"] // heads,
        max_position_embeddings=field["llama.context_length"],
        # GGUF holds it as a float32; the model's own figure has few digits.
        rms_norm_eps=float(f"{field['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        rope_parameters={"rope_type": "default", "rope_theta": field["llama.rope.freq_base"]},
        bos_token_id=field["tokenizer.ggml.bos_token_id"],
        eos_token_id=field["tokenizer.ggml.eos_token_id"],
        pad_token_id=field["tokenizer.ggml.padding_token_id"],
        tie_word_embeddings=tied,
        dtype="bfloat16",
    )


def convert(source: Path, folder: Path) -> tuple[int, int]:
    """Write the folder; give the number of tensors and of parameters."""
    reader = gguf.GGUFReader(source)
    field = {name: value.contents() for name, value in reader.fields.items()}
    config = read_config(field, tied=all(t.name != "output.weight" for t in reader.tensors))
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    weights = {}
    for tensor in reader.tensors:
        weight = gguf.dequantize(tensor.data, tensor.tensor_type)
        projection = tensor.name.split(".")[-2]
        if projection in heads:
            weight = unpermute(weight, heads[projection])
        weights[hugging_face_name(tensor.name)] = torch.from_numpy(np.array(weight)).to(
            torch.bfloat16
        )
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(folder)
    GenerationConfig.from_model_config(config).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.save_pretrained(folder)
    return len(weights), sum(weight.numel() for weight in weights.values())


def ask(folder: Path, question: str) -> str:
    """Say what the model in the folder answers, greedily."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    output = model.generate(**prompt, max_new_tokens=24, do_sample=False)
    answer = output[0, prompt["input_ids"].shape[1] :]
    return str(tokenizer.decode(answer, skip_special_tokens=True)).strip()


def main() -> None:
    """Read the request, convert, ask, and print the report."""
    request = json.load(sys.stdin)
    folder = Path(request["folder"])
    tensors, parameters = convert(Path(request["gguf"]), folder)
    answer = ask(folder, request["question"])
    print(json.dumps({"tensors": tensors, "parameters": parameters, "answer": answer}))


if __name__ == "__main__":
    main()
