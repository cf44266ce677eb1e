# Takes the lock KEY again and again for so many SECONDS, by the defaults of redis-py; see mod.rs for what it prints.
import sys
import time

import redis

url, key, seconds, hold, pause = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
lock = redis.Redis.from_url(url).lock(key, timeout=10)
lock.redis.ping()
print("ready", flush=True)
sys.stdin.readline()
start = time.monotonic()
waits = []
while time.monotonic() < start + seconds:
    wanted = time.monotonic()
    if not lock.acquire():
        continue
    waits.append((wanted - start, time.monotonic() - start))
    time.sleep(hold)
    lock.release()
    time.sleep(pause)
print(" ".join(f"{wanted * 1e6:.0f} {got * 1e6:.0f}" for wanted, got in waits), flush=True)
