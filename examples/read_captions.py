"""Prints path, visual tokens kept and caption of each line that `tessera caption -o x.jsonl` wrote."""

import json
import sys


def main(path: str) -> int:
    failed = 0
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            item = json.loads(line)
            if "error" in item:
                failed += 1
                print(f"{item.get('path', item.get('id'))}: {item['error']['code']}")
                continue
            kept = f"{item['kept_tokens']}/{item['visual_tokens']}"
            print(f"{item['path']}  {kept}  {item['caption']}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
