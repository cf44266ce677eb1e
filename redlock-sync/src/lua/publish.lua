-- Publishes on a channel: to see that a subscription is there, or to wake the thread that listens.
-- ARGV[1] channel, ARGV[2] text
-- replies the number of connections that receive it
return redis.call('PUBLISH', ARGV[1], ARGV[2])
