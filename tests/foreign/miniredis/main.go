// A server of another make, for the step `servers`: miniredis, with a clock that goes. It judges the Lua of the scripts
// and their replies. It does not judge the ends of leases: keys end when this program says so, each millisecond.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	port := flag.Int("port", 6379, "the port on 127.0.0.1")
	flag.Parse()
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr(fmt.Sprintf("127.0.0.1:%d", *port)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for last := time.Now(); ; {
		time.Sleep(time.Millisecond)
		now := time.Now()
		server.SetTime(now)
		server.FastForward(now.Sub(last))
		last = now
	}
}
