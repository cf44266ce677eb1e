import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Locks KEY by a bucket of Redisson, or by its lock; tests/src/foreign/mod.rs has what a program is told, and says. */
public class Locks {
    private static final Duration TTL = Duration.ofSeconds(10);
    private static final Duration POLL = Duration.ofMillis(100);

    private final RBucket<String> bucket;
    private final RLock lock;
    private String token = "";

    private Locks(RedissonClient client, String key) {
        bucket = client.getBucket(key, StringCodec.INSTANCE);
        lock = client.getLock(key);
    }

    public static void main(String[] args) throws Exception {
        Config config = new Config().setThreads(2).setNettyThreads(2);
        // A command that is sent again finds the lock that its first sending took.
        int patience = 60_000;
        config.useSingleServer().setAddress(args[0]).setConnectionMinimumIdleSize(1).setTimeout(patience).setRetryAttempts(0);
        Locks locks = new Locks(Redisson.create(config), args[1]);
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(locks.answer(line.split(" ")));
        }
        System.exit(0);
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "acquire":
                return said(acquire());
            case "release":
                return said(release());
            case "acquire-lock":
                return said(lock::tryLock);
            case "release-lock":
                return said(() -> { lock.unlock(); return true; });
            default:
                return turns(Double.parseDouble(words[1]), Double.parseDouble(words[2]), Double.parseDouble(words[3]));
        }
    }

    private boolean acquire() {
        token = UUID.randomUUID().toString();
        return bucket.setIfAbsent(token, TTL);
    }

    private boolean release() {
        return bucket.compareAndSet(token, null);
    }

    private interface Act {
        boolean run();
    }

    private static String said(Act act) {
        try {
            return said(act.run());
        } catch (RedisException error) {
            return error.getMessage().contains("WRONGTYPE") ? "wrong type" : error.getMessage();
        }
    }

    private static String said(boolean done) {
        return done ? "yes" : "no";
    }

    private String turns(double seconds, double hold, double pause) throws InterruptedException {
        long start = System.nanoTime();
        long end = start + (long) (seconds * 1e9);
        List<String> moments = new ArrayList<>();
        while (System.nanoTime() < end) {
            long wanted = System.nanoTime();
            boolean held = acquire();
            while (!held && System.nanoTime() < end) {
                Thread.sleep(POLL.toMillis());
                held = acquire();
            }
            if (!held) break;
            moments.add(Long.toString((wanted - start) / 1000));
            moments.add(Long.toString((System.nanoTime() - start) / 1000));
            Thread.sleep((long) (hold * 1000));
            if (!release()) throw new IllegalStateException("the lock was lost");
            Thread.sleep((long) (pause * 1000));
        }
        return String.join(" ", moments);
    }
}
