#!/usr/bin/env bash
# Records this folder's tables on an H200. From the checkout's root, with sweeper and PyCUDA installed:
#   bash results/h200/record.sh [INTO]
set -euo pipefail
into=${1:-results/h200}
sweep() { python3 -m sweeper "$@"; }

sweep +shape=large kernel=tiled results_dir="$into/tiled-large"
sweep -m kernel=tiled kernel.params.tile=8,16,32 +shape=small,odd results_dir="$into/tile-sweep"
sweep -m kernel=naive,tiled +shape=small,odd results_dir="$into/variants"
sweep -m kernel=sample_block,sample_plain +shape=sample results_dir="$into/sample"
sweep -m kernel=uncoalesced,naive,tiled,register_tile +shape=large results_dir="$into/rungs-large"
