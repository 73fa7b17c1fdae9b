"""How much the server does under load, next to `tessera batch` and `tessera caption` on the same work.

    python serve_load.py PROGRAM --clients 64 --images 6250 --captions 6250 --image-cache 32

PROGRAM is `tessera`. Clients ask for images with a seed each, and for texts about the batch's images, as streams, in a random
order; with `--leave`, a share of further requests is left at a random moment. Prints seconds of both, seconds to the first
event, the server's memory over time, and what was lost or wrong: each image must have the bytes of the batch's file, each
text be that of the caption command. All images are different: `--image-cache` is what the server keeps of them, in MiB.
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


def captions(program, folder, count, slots):
    """Seconds, and the text of each image."""
    out, began = Path(folder) / "texts.jsonl", time.monotonic()
    subprocess.run([program, "caption", *[str(image_file(folder, i)) for i in range(count)], "-o", str(out),
                    "--batch-size", str(slots)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    texts = {Path(row["path"]).name: row["caption"] for row in map(json.loads, out.read_text().splitlines())}
    return seconds, {i: texts[image_file(folder, i).name] for i in range(count)}


def image_file(folder, index):
    return Path(folder) / "out" / f"i{index}_{index}.png"


def ask(port, index, leave, firsts, image=None):
    """The image's bytes, or the text about `image`; None where the client left."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    if image is None:
        path, body = "/v1/images/generations", {"model": "tabletop-janus", "prompt": PROMPTS[index % 4], "seed": index,
                                                "stream": True, "partial_images": 1}
    else:
        url = "data:image/png;base64," + base64.b64encode(image.read_bytes()).decode()
        path, body = "/v1/chat/completions", {"model": "tabletop-llava", "stream": True, "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}},
                                         {"type": "text", "text": "Describe the picture."}]}]}
    body = json.dumps(body)
    began = time.monotonic()
    link.request("POST", path, body, {"Content-Type": "application/json"})
    if leave is not None:
        time.sleep(leave)
        link.close()
        return None
    answer = link.getresponse()
    if answer.status == 429:
        time.sleep(float(answer.headers["Retry-After"]))
        return ask(port, index, leave, firsts, image)
    made = None if image is None else ""
    for line in answer:
        if not line.startswith(b"data:") or line.startswith(b"data: [DONE]"):
            continue
        if firsts is not None:
            firsts.append(time.monotonic() - began)
            firsts = None
        event = json.loads(line[5:])
        if image is not None:
            made += event["choices"][0]["delta"].get("content") or ""
        elif event["type"] == "image_generation.completed":
            made = base64.b64decode(event["b64_json"])
    link.close()
    return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--captions", type=int, default=500)
    parser.add_argument("--leave", type=float, default=0)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--image-cache", type=int, default=32)
    flags = parser.parse_args()
    server = subprocess.Popen([flags.program, "serve", "--port", "0", "--json", "--slots", str(flags.slots),
                               "--image-cache", str(flags.image_cache)],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    port = int(server.stdout.readline().split('"')[3].rsplit(":", 1)[1])
    ask(port, 0, None, None)
    work, made, firsts, sizes, left, over = [], {}, [], [], [0], threading.Event()
    draw = random.Random(1)
    for kind, count in (("image", flags.images), ("text", flags.captions)):
        for i in range(count):
            work.append((kind, i, None))
            while draw.random() < flags.leave:
                work.append((kind, i, draw.random() * 2))
    draw.shuffle(work)
    waiting = queue.Queue()
    for item in work:
        waiting.put(item)

    with tempfile.TemporaryDirectory() as folder:
        def client():
            while True:
                try:
                    kind, index, leave = waiting.get_nowait()
                except queue.Empty:
                    return
                image = image_file(folder, index) if kind == "text" else None
                answer = ask(port, index, leave, firsts, image)
                if leave is None:
                    made[kind, index] = answer
                else:
                    left[0] += 1

        def watch():
            while not over.wait(1):
                sizes.append(memory(server.pid))

        alone = batch(flags.program, max(flags.images, flags.captions), folder, flags.slots)
        alone *= flags.images / max(flags.images, flags.captions)
        more, texts = captions(flags.program, folder, flags.captions, flags.slots) if flags.captions else (0, {})
        alone += more
        began = time.monotonic()
        watcher = threading.Thread(target=watch)
        watcher.start()
        threads = [threading.Thread(target=client) for _ in range(flags.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - began
        over.set()
        watcher.join()
        want = {("image", i): image_file(folder, i).read_bytes() for i in range(flags.images)}
        want.update({("text", i): text for i, text in texts.items()})
    # A batch's files say so of themselves; pixels and record are the same.
    wrong = [key for key, value in want.items() if made.get(key) != value]
    firsts.sort()
    print(f"{flags.images} images and {flags.captions} texts: commands {alone:.1f} s, server {seconds:.1f} s: "
          f"{alone / seconds:.3f} of their speed, with {left[0]} clients that left")
    print(f"first event after {firsts[len(firsts) // 2]:.2f} s (median), {firsts[int(len(firsts) * .99)]:.2f} s (p99)")
    tenths = [sizes[len(sizes) * i // 10:len(sizes) * (i + 1) // 10] for i in range(10)]
    print("memory, MiB, mean of each tenth: " + " ".join(f"{sum(tenth) / max(1, len(tenth)):.1f}" for tenth in tenths))
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
