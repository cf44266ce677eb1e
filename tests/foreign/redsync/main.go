// Locks KEY by redsync on the servers of URLS; tests/src/foreign/mod.rs has what a program is told, and says.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	driver "github.com/redis/go-redis/v9"
)

func main() {
	mutex := redsync.New(pools(strings.Split(os.Args[1], ","))...).NewMutex(os.Args[2], redsync.WithExpiry(10*time.Second))
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(answer(mutex, strings.Fields(lines.Text())))
	}
}

func pools(urls []string) []redis.Pool {
	var pools []redis.Pool
	for _, url := range urls {
		options, err := driver.ParseURL(url)
		check(err)
		client := driver.NewClient(options)
		check(client.Ping(context.Background()).Err())
		pools = append(pools, goredis.NewPool(client))
	}
	return pools
}

func answer(mutex *redsync.Mutex, words []string) string {
	switch words[0] {
	case "acquire":
		return said(true, mutex.TryLock())
	case "extend":
		return said(mutex.Extend())
	case "release":
		return said(mutex.Unlock())
	default:
		return turns(mutex, seconds(words[1]), seconds(words[2]), seconds(words[3]))
	}
}

func said(done bool, err error) string {
	if done && err == nil {
		return "yes"
	}
	return "no"
}

func turns(mutex *redsync.Mutex, span, hold, pause time.Duration) string {
	start := time.Now()
	var moments []string
	for time.Since(start) < span {
		wanted := time.Since(start)
		err := mutex.Lock()
		for err != nil && time.Since(start) < span {
			err = mutex.Lock() // It gave up.
		}
		if err != nil {
			break
		}
		for _, moment := range []time.Duration{wanted, time.Since(start)} {
			moments = append(moments, strconv.FormatInt(moment.Microseconds(), 10))
		}
		time.Sleep(hold)
		_, err = mutex.Unlock()
		check(err)
		time.Sleep(pause)
	}
	return strings.Join(moments, " ")
}

func seconds(word string) time.Duration {
	number, err := strconv.ParseFloat(word, 64)
	check(err)
	return time.Duration(number * float64(time.Second))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
