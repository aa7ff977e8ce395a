"""Opening the MLflow UI on a study's own store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import FrameType

from tuner.study import Study
from tuner.tracking import key_of_study, local_store, runs_page, shown


def command(store: str, host: str, port: int) -> list[str]:
    """The server's command line, by the same Python: one worker, which is plenty for one person."""
    return [
        sys.executable, "-m", "mlflow", "server",
        "--backend-store-uri", store,
        "--host", host, "--port", str(port), "--workers", "1",
    ]  # fmt: skip


def serve(study: Study, *, host: str, port: int) -> int:
    """Run the UI until Ctrl-C, then end it whole; returns its exit status.

    A study that tracks to a server of its own has its UI there, so only the address is printed.
    """
    uri = study.files.study.tracking.uri
    if uri is not None and uri.startswith("http"):
        print(f"This study's runs are at {shown(uri)}")
        return 0
    # Job execution would start a dozen more processes, and none of them serves a study.
    env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    store = uri or local_store(study.folder)
    # Its front page is about traces and agents; what is wanted is this study's lane.
    page = runs_page(f"http://{host}:{port}", store, key_of_study(study.folder, study.name))
    print(f"MLflow UI (takes about 20 seconds; Ctrl-C ends it): {page}", flush=True)
    server = subprocess.Popen(command(store, host, port), env=env, start_new_session=True)
    # The server is in a session of its own: who ends us in another way than Ctrl-C ends it too.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return server.wait()
    except KeyboardInterrupt:
        os.killpg(server.pid, signal.SIGTERM)
        return 0 if server.wait() in (0, -signal.SIGTERM) else 1


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
