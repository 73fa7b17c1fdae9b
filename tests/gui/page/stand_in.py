"""A server in front of the real one: it hands on what it is asked, but writes slowly where the prompt
begins with "slow", and answers chats itself, with what pruning kept.

  stand_in.py URL      prints its own address
"""
import http.server
import json
import sys
import threading
import time
import urllib.error
import urllib.request

CAPTION = "a large red shiny sphere and a small blue matte cube on a gray floor"
COLUMNS, ROWS = 12, 12
KEPT = [row * COLUMNS + column for row in range(3, 10) for column in range(2, 9)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, fields, body):
        self.send_response(status)
        for name, value in fields:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def hand_on(self, body=None):
        fields = {name: value for name, value in self.headers.items()
                  if name.lower() in ("authorization", "content-type")}
        request = urllib.request.Request(self.server.behind + self.path, data=body, headers=fields, method=self.command)
        try:
            answer = urllib.request.urlopen(request, timeout=60)
        except urllib.error.HTTPError as error:
            answer = error
        kept = [(name, value) for name, value in answer.headers.items()
                if name.lower() not in ("content-length", "connection", "transfer-encoding")]
        return answer.status, kept, answer.read()

    def do_GET(self):
        if self.server.away:
            return self.close_connection_now()
        self.answer(*self.hand_on())

    def close_connection_now(self):
        self.close_connection = True
        self.connection.shutdown(2)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = json.loads(body)
        self.server.asked.append((self.path, asked))
        if self.path == "/v1/chat/completions":
            return self.chat(asked)
        status, fields, answer = self.hand_on(body)
        if status != 200 or not asked.get("prompt", "").startswith(self.server.slow):
            return self.answer(status, fields, answer)
        self.stream([block + b"\n\n" for block in answer.split(b"\n\n") if block], self.server.pause)

    def stream(self, blocks, pause):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for block in blocks:
                time.sleep(pause)
                self.wfile.write(block)
                self.wfile.flush()
        except OSError:
            self.server.gone += 1

    def chat(self, asked):
        part = asked["messages"][0]["content"][0]
        if part["type"] != "image_url" or not part["image_url"]["url"].startswith("data:image/"):
            error = {"message": "messages[0].content[0]: expected an image, found another",
                     "type": "invalid_request_error", "param": "messages[0].content[0]", "code": "E_FIELD"}
            return self.answer(400, [("Content-Type", "application/json")], json.dumps({"error": error}).encode())
        head = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": 0, "model": asked.get("model")}

        def chunk(delta, reason=None):
            return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

        words = CAPTION.split(" ")
        events = [chunk({"role": "assistant", "content": ""})]
        events += [chunk({"content": word if at == 0 else " " + word}) for at, word in enumerate(words)]
        events.append(chunk({}, "stop"))
        events.append({**head, "choices": [],
                       "usage": {"prompt_tokens": 60, "completion_tokens": len(words), "total_tokens": 60 + len(words)},
                       "visual": {"tokens": COLUMNS * ROWS, "kept_tokens": len(KEPT),
                                  "patches": [{"image": 0, "columns": COLUMNS, "rows": ROWS, "box": [0, 0, 1, 1],
                                               "kept": KEPT}]}})
        blocks = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events] + [b"data: [DONE]\n\n"]
        # The middle of a character and of an event may be where a packet ends.
        whole = b"".join(blocks)
        self.stream([whole[at:at + 97] for at in range(0, len(whole), 97)], 0.005)


class StandIn:
    def __init__(self, behind, pause=0.25, port=0, slow="slow"):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.server.behind = behind
        self.server.pause = pause
        self.server.slow = slow  # the beginning of prompts that are written slowly
        self.server.asked = []
        self.server.gone = 0
        self.server.away = False
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


if __name__ == "__main__":
    stand_in = StandIn(sys.argv[1], port=int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(stand_in.url, flush=True)
    stand_in.thread.join()
