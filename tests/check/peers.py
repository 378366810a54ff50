#!/usr/bin/env python3
"""peers.py: the structs of the peers' ctypes binding have their fields where the C compiler puts them.

usage: peers.py BENCH-PEERS-FOLDER ABI.DEF
"""
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import attn_ctypes  # noqa: E402, found by the path above

STRUCTS = {"attn_error": attn_ctypes.Error, "attn_options": attn_ctypes.Options,
           "attn_layer_options": attn_ctypes.LayerOptions, "attn_layer_info": attn_ctypes.LayerInfo,
           "attn_args": attn_ctypes.Args}
# What the binding writes as two fields stands in the header as one.
PARTS = {("attn_layer_options", "device"): "device_type"}


def main():
    passed = failed = 0
    with open(sys.argv[2], encoding="utf-8") as lines:
        rows = re.findall(r"^FIELD\((\w+), (\w+), (\d+)\)", lines.read(), flags=re.M)
    for name, struct in STRUCTS.items():
        places = {field: int(place) for owner, field, place in rows if owner == name}
        known = [field for field, _ in struct._fields_]
        for field, place in places.items():
            field = PARTS.get((name, field), field)
            if field not in known:
                continue
            found = getattr(struct, field).offset
            passed += found == place
            failed += found != place
            if found != place:
                print("%s.%s is at %d in the binding and at %d in C" % (name, field, found, place))
        for field in known:
            if field not in places and field not in ("device_type", "device_id"):
                failed += 1
                print("%s has no field %s in C" % (name, field))
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(failed > 0 or passed == 0)


if __name__ == "__main__":
    main()
