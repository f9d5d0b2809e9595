#!/bin/sh
# Roll back: the alias moves, the old bytes come from the registry, the work tree stays.
. "$(dirname "$0")/scratch.sh"

before=$(sha256sum < templates/kefu-zh/system.md)
try prefixctl publish kefu-zh
printf '\r\n新规则：先查订单。\r\n' >> templates/kefu-zh/system.md
try prefixctl bump kefu-zh --reason "Order first" --author example
try prefixctl publish kefu-zh
try prefixctl rollback kefu-zh
after=$(prefixctl render kefu-zh@live --file system.md | sha256sum)
[ "$before" = "$after" ] && echo "the live text is version 1, byte for byte"
