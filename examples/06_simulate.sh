#!/bin/sh
# What would a policy, a pin, a share or a second server buy? A help desk, flooded by a report job.
. "$(dirname "$0")/scratch.sh"
cp "$here/simulate/trace.jsonl" .

try prefixctl simulate trace.jsonl --capacity 40,80,160,320
try prefixctl simulate trace.jsonl --capacity 60 --policy lru --pin-top 1
try prefixctl simulate trace.jsonl --capacity 80 --policy lru --shares
try prefixctl simulate trace.jsonl --capacity 80 --policy lru --replicas 2
try prefixctl simulate trace.jsonl --capacity 80 --policy lru --replicas 2 --routing prefix-aware
try prefixctl simulate trace.jsonl --policy lru_frq
