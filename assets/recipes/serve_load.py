"""How much the server does under load, next to `tessera batch` on the same images.

    python serve_load.py PROGRAM --clients 64 --images 1000 --leave 0.2

PROGRAM is `tessera`. Clients ask for images with a seed each, as streams; a share of further requests is left at a random
moment. Prints images a second of both, seconds to the first event, the server's memory over time, and what was lost or wrong:
each image must have the bytes of the batch's file.
"""
import argparse
import base64
import http.client
import json
import queue
import random
import subprocess
import tempfile
import threading
import time
from pathlib import Path

PROMPTS = ["a red cube", "a large shiny blue sphere on a green floor", "a small matte cone", "two cylinders on a brown floor"]


def memory(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024


def batch(program, count, folder, slots):
    job = Path(folder) / "job.jsonl"
    job.write_text("".join(json.dumps({"id": f"i{i}", "prompt": PROMPTS[i % 4], "seed": i}) + "\n" for i in range(count)))
    began = time.monotonic()
    subprocess.run([program, "batch", str(job), "--output-dir", str(Path(folder) / "out"), "--batch-size", str(slots)],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - began


def ask(port, index, leave, firsts):
    """The image's bytes; None where the client left."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = json.dumps({"model": "tabletop-janus", "prompt": PROMPTS[index % 4], "seed": index, "stream": True,
                       "partial_images": 1})
    began = time.monotonic()
    link.request("POST", "/v1/images/generations", body, {"Content-Type": "application/json"})
    if leave is not None:
        time.sleep(leave)
        link.close()
        return None
    answer = link.getresponse()
    if answer.status == 429:
        time.sleep(float(answer.headers["Retry-After"]))
        return ask(port, index, leave, firsts)
    made = None
    for line in answer:
        if line.startswith(b"event:") and firsts is not None and made is None:
            firsts.append(time.monotonic() - began)
            firsts = None
        if line.startswith(b"data:"):
            event = json.loads(line[5:])
            if event["type"] == "image_generation.completed":
                made = base64.b64decode(event["b64_json"])
    link.close()
    return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--leave", type=float, default=0)
    parser.add_argument("--slots", type=int, default=8)
    flags = parser.parse_args()
    server = subprocess.Popen([flags.program, "serve", "--port", "0", "--json", "--slots", str(flags.slots)],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    port = int(server.stdout.readline().split('"')[3].rsplit(":", 1)[1])
    ask(port, 0, None, None)
    work, made, firsts, sizes, left = queue.Queue(), {}, [], [], [0]
    draw = random.Random(1)
    for i in range(flags.images):
        work.put((i, None))
        while draw.random() < flags.leave:
            work.put((i, draw.random() * 2))

    def client():
        while True:
            try:
                index, leave = work.get_nowait()
            except queue.Empty:
                return
            image = ask(port, index, leave, firsts)
            if leave is None:
                made[index] = image
            else:
                left[0] += 1
            if index % 20 == 0:
                sizes.append(memory(server.pid))

    with tempfile.TemporaryDirectory() as folder:
        alone = batch(flags.program, flags.images, folder, flags.slots)
        began = time.monotonic()
        threads = [threading.Thread(target=client) for _ in range(flags.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - began
        files = {i: (Path(folder) / "out" / f"i{i}_{i}.png").read_bytes() for i in range(flags.images)}
    # A batch's files say so of themselves; pixels and record are the same.
    wrong = [i for i in range(flags.images) if made.get(i) != files[i]]
    firsts.sort()
    print(f"batch {flags.images / alone:.2f} images a second, server {flags.images / seconds:.2f}: "
          f"{alone / seconds:.3f} of it, with {left[0]} that left")
    print(f"first event after {firsts[len(firsts) // 2]:.2f} s (median), {firsts[int(len(firsts) * .99)]:.2f} s (p99)")
    tenth = max(1, len(sizes) // 10)
    print(f"memory {sum(sizes[:tenth]) / tenth:.1f} MiB in the first tenth, {sum(sizes[-tenth:]) / tenth:.1f} in the last")
    print(f"lost or wrong: {len(wrong)}")
    health = http.client.HTTPConnection("127.0.0.1", port)
    for _ in range(100):
        health.request("GET", "/health")
        now = json.loads(health.getresponse().read())
        if now["waiting"] + now["at_work"] == 0:
            break
        time.sleep(0.1)
    print(f"afterwards {now['waiting']} wait, {now['at_work']} at work")
    health.close()
    server.terminate()
    server.wait()


if __name__ == "__main__":
    main()
