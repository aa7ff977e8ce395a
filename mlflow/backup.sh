#!/usr/bin/env bash
# Saves the database and the artifacts of the team's tracking server into a new folder.
#   mlflow/backup.sh FOLDER
# The ledgers of the studies are the source of truth: what a restored server lacks of a study is
# sent again by `tuner run STUDY`, wherever that study's folder is.
set -euo pipefail

target="${1:?usage: backup.sh FOLDER}/mlflow-$(date -u +%Y%m%dT%H%M%SZ)"
cd "$(dirname "$0")"
compose=(docker compose --env-file settings.env)

mkdir -p "$target"
# The database first: an artifact without a run is harmless, a run without its artifact is not.
"${compose[@]}" exec -T database pg_dump --username mlflow --format custom mlflow >"$target/mlflow.dump"
"${compose[@]}" exec -T server tar --create --gzip --directory /artifacts . >"$target/artifacts.tar.gz"
sha256sum "$target"/* >"$target/SHA256SUMS"
printf '%s\n' "$target"
