# Keeps one server for a test process: $1 is the server's directory, the rest is its command line.
# Orders come on stdin, one a line, and are answered on stdout:
#   start   starts the server and answers its process id
#   kill    kills the server with SIGKILL and answers `gone` once it is reaped
# When stdin ends, which it does however the test process ends, or at `quit`, the server is killed, the directory removed.
dir=$1
shift
server=

end() {
    [ -z "$server" ] && return
    kill -KILL "$server"
    wait "$server"
    server=
} 2>/dev/null

while read -r order; do
    case $order in
    start)
        "$@" </dev/null >>"$dir/log" 2>&1 &
        server=$!
        echo "$server"
        ;;
    kill)
        end
        echo gone
        ;;
    quit) break ;;
    esac
done
end
rm -rf "$dir"
