# Puts COUNT jobs into a queue of RQ one by one, as many in hundreds, and has one worker end them all; see queues.rs for what it prints.
import logging
import sys
import time

import redis
from rq import Queue, SimpleWorker

url, count, _ = sys.argv[1:]
count = int(count)
logging.disable()
connection = redis.Redis.from_url(url)
queue = Queue("mails", connection=connection)
body = "x" * 100
began = time.monotonic()
for _ in range(count):
    queue.enqueue("builtins.len", body, result_ttl=0)
one = time.monotonic() - began
for _ in range(0, count, 100):
    queue.enqueue_many([Queue.prepare_data("builtins.len", (body,), result_ttl=0) for _ in range(100)])
many = time.monotonic() - began - one
start = time.monotonic()
# Without a process for each job, which is what its default worker starts.
SimpleWorker([queue], connection=connection).work(burst=True)
assert len(queue) == 0
print(count / one, count / many, 2 * count / (time.monotonic() - start))
