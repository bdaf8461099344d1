"""A server that tells, a line each: its version (or its name), who asked, and what the request said. It talks back in capitals after
`Upgrade: echo`, to each chunk of a POST as it comes, and to datagrams; after `/sick` it is not ready any more."""
import http.server, os, socket, threading

sick = []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.headers["Upgrade"] == "echo":
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", "echo")
            self.end_headers()
            for line in self.rfile:
                self.wfile.write(line.upper())
            self.close_connection = True
            return
        if self.path == "/sick":
            sick.append(True)
        names = ["Host", "X-Forwarded-Host", "X-Forwarded-For", "X-Forwarded-Proto", "Cookie"]
        told = [self.path, *(self.headers[name] or "-" for name in names)]
        who = os.environ.get("VERSION") or os.environ["HOSTNAME"]
        body = "\n".join([who, self.client_address[0], " ".join(told), ""]).encode()
        self.send_response(500 if sick and self.path == "/healthz" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while True:
            chunk = self.rfile.read(int(self.rfile.readline(), 16))
            self.rfile.readline()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk.upper()))
            if not chunk:
                return

    def log_message(self, *words):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


def datagrams():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("", 5300))
    while True:
        said, client = server.recvfrom(100)
        server.sendto(said.upper() + b" " + client[0].encode(), client)


threading.Thread(target=datagrams, daemon=True).start()
Server(("", 8080), Handler).serve_forever()
