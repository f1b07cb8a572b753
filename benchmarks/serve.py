"""Compare the throughput of ``cosen serve`` with ``predict`` in one batch job.

The model is EfficientNet-Lite0 at 224 pixels, on 400 generated JPEGs of 500 x 375 pixels. Eight
clients send one image per request for a minute, on the same cores as the server. Before and after,
the same model predicts all images at once, and the ratio is that to the mean of both. Also printed:
failed requests, the median and the slowest 1 % of the response times, and the memory of the server
after ten seconds and at the end.

    python benchmarks/serve.py [SECONDS]
"""

import http.client
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from PIL import Image

import cosen

IMAGES, CLIENTS, EPOCHS = 400, 8, 1


def make_images(root: Path) -> None:
    generator = np.random.default_rng(0)
    for number in range(IMAGES):
        coarse = generator.integers(0, 256, (24, 32, 3), dtype=np.uint8)
        path = root / f"class-{number % 4}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC).save(path, quality=90)


def batch_job(run: cosen.Run, images: list[Path]) -> float:
    """Return images per second."""
    start = time.perf_counter()
    run.predict(images)
    return len(images) / (time.perf_counter() - start)


def body_of(image: bytes) -> bytes:
    head = b'--b\r\nContent-Disposition: form-data; name="images"; filename="a.jpg"\r\n\r\n'
    return head + image + b"\r\n--b--\r\n"


def client(port: int, bodies: list[bytes], end: float, times: list[float], failed: list) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    number = 0
    while time.perf_counter() < end:
        start = time.perf_counter()
        try:
            connection.request("POST", "/predict", bodies[number % len(bodies)], headers)
            answer = connection.getresponse()
            content = answer.read()
            if answer.status != 200 or b'"class"' not in content:
                raise RuntimeError(f"status {answer.status}")
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            failed.append(error)
            connection.close()
        else:
            times.append(time.perf_counter() - start)
        number += 1


def load_test(run: Path, bodies: list[bytes], seconds: float) -> tuple[list[float], list, list]:
    """Return the response times, the failures, and the memory in MB after 10 s and at the end."""
    command = [sys.executable, "-m", "cosen", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = int(process.stdout.readline().split("/")[2].rpartition(":")[2])
            times: list[float] = []
            failed: list[Exception] = []
            end = time.perf_counter() + seconds
            clients = [
                threading.Thread(target=client, args=(port, bodies[n:], end, times, failed))
                for n in range(CLIENTS)
            ]
            for one in clients:
                one.start()
            memory, server = [], psutil.Process(process.pid)
            time.sleep(min(10, seconds / 2))
            memory.append(server.memory_info().rss / 1e6)
            for one in clients:
                one.join()
            memory.append(server.memory_info().rss / 1e6)
        finally:
            process.terminate()
    return times, failed, memory


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        make_images(root / "photos")
        run = cosen.train(root / "photos", out=root / "run", finetune="none", epochs=EPOCHS)
        images = sorted((root / "photos").rglob("*.jpg"))
        run.predict(images[:64])  # the first batch is slower
        before = batch_job(run, images)
        bodies = [body_of(path.read_bytes()) for path in images]
        times, failed, memory = load_test(run.path, bodies, seconds)
        after = batch_job(run, images)
    served = len(times) / seconds
    print(f"predict: {before:.1f} and {after:.1f} images/s; serve: {served:.1f} images/s")
    print(
        f"{len(times)} answers, {len(failed)} failed; median {np.median(times):.2f} s, "
        f"slowest 1 % {np.quantile(times, 0.99):.2f} s"
    )
    print(f"memory of the server: {memory[0]:.0f} MB after 10 s, {memory[1]:.0f} MB at the end")
    print(f"{served / ((before + after) / 2):.2f}x the throughput of predict")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
