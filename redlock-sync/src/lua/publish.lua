-- Publishes a message.
-- KEYS: none
-- ARGV[1] channel, ARGV[2] message
-- replies the number of clients that received it
return redis.call('PUBLISH', ARGV[1], ARGV[2])
