"""What `tfimg verify --json` printed → the action's outputs, a line each."""

import json
import sys

verified = json.loads(sys.stdin.read().splitlines()[-1])
name = sys.argv[1].partition("@")[0]
folder, slash, last = name.rpartition("/")
print(f"digest={verified['digest']}")
print(f"image={folder}{slash}{last.partition(':')[0]}@{verified['digest']}")
print(f"level={verified['level']}")
