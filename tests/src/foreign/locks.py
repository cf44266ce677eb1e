# Locks KEY by the lock of redis-py, or by python-redis-lock; mod.rs has what a program is told, and says.
import logging
import sys
import time

import redis

library, url, key = sys.argv[1:]
client = redis.Redis.from_url(url)
TTL = 10


class RedisPy:
    def __init__(self):
        self.lock = client.lock(key, timeout=TTL)
        self.refusal = redis.exceptions.LockError

    def attempt(self):
        return self.lock.acquire(blocking=False)

    def wait(self):
        return self.lock.acquire()

    def extend(self):
        return self.lock.extend(TTL, replace_ttl=True)


class PythonRedisLock:
    def __init__(self):
        import redis_lock

        prefix, name = key.split(":", 1)
        assert prefix == "lock"
        logging.disable()  # A line for each attempt that finds the lock taken.
        self.lock = redis_lock.Lock(client, name, expire=TTL)
        self.refusal = redis_lock.NotAcquired

    def attempt(self):
        return self.lock.acquire(blocking=False)

    def wait(self):
        # It would wait for a message of its own kind, and look again only when its own lease could have ended.
        while not self.attempt():
            time.sleep(0.1)
        return True

    def extend(self):
        self.lock.extend(TTL)
        return True


own = {"redis-py": RedisPy, "python-redis-lock": PythonRedisLock}[library]()


def is_done(act):
    try:
        return act() is not False
    except own.refusal:
        return False


def turns(seconds, hold, pause):
    start = time.monotonic()
    moments = []
    while time.monotonic() < start + seconds:
        wanted = time.monotonic()
        own.wait()
        moments += [wanted - start, time.monotonic() - start]
        time.sleep(hold)
        own.lock.release()
        time.sleep(pause)
    return " ".join(f"{moment * 1e6:.0f}" for moment in moments)


client.ping()
print("ready", flush=True)
for line in sys.stdin:
    command, *numbers = line.split()
    if command == "turns":
        print(turns(*map(float, numbers)), flush=True)
    else:
        act = {"acquire": own.attempt, "extend": own.extend, "release": own.lock.release}[command]
        print("yes" if is_done(act) else "no", flush=True)
