use super::*;

fn show(text: &str) -> String {
    NodeUrl::parse(text).unwrap().to_string()
}

fn refusal(text: &str) -> String {
    NodeUrl::parse(text).unwrap_err().to_string()
}

#[test]
fn good_urls_are_shown_without_user_and_password() {
    assert_eq!(show("redis://localhost"), "redis://localhost:6379/0");
    assert_eq!(show("redis://user:pa%40ss@Host:7000/3"), "redis://host:7000/3");
    assert_eq!(show("redis://:secret@[::1]:7000"), "redis://[::1]:7000/0");
    assert_eq!(show("redis+unix:///run/redis.sock?db=2&pass=secret"), "redis+unix:///run/redis.sock?db=2");
    assert_eq!(show("unix:///run/redis.sock"), "redis+unix:///run/redis.sock?db=0");
    let group = "redis+sentinel://user:a,b%40@h1:7000,H2,[::1]/main/3?sentinel_user=me&sentinel_password=secret%26";
    assert_eq!(show(group), "redis+sentinel://h1:7000,h2:26379,[::1]:26379/main/3");
    assert_eq!(show("valkey+sentinel://h1/a.b-c_d"), "redis+sentinel://h1:26379/a.b-c_d/0");
    let url = NodeUrl::parse(group).unwrap();
    let login = |url: &NodeUrl| url.info.redis_settings().password().map(str::to_owned);
    assert_eq!((url.address(), login(&url).unwrap()), ("main@h1:7000,h2:26379,[::1]:26379", "a,b@".into()));
    assert_eq!(login(url.group.as_ref().unwrap().sentinels.last().unwrap()).unwrap(), "secret&");
    assert_eq!((url.with_host("x", 9).address(), login(&url.with_host("x", 9)).unwrap()), ("x:9", "a,b@".into()));
    let url = NodeUrl::parse("redis://user:secret@127.0.0.1/1").unwrap();
    assert_eq!(format!("{url:?}"), "redis://127.0.0.1:6379/1");
    assert_eq!(url.address(), "127.0.0.1:6379");
    assert_eq!(url.info.redis_settings().password(), Some("secret"));
    assert!(url.info.tcp_settings().nodelay());
}

#[test]
fn a_cluster_has_a_list_of_hosts() {
    assert_eq!(show("redis+cluster://me:pa%40ss@H1:7000,[::1]:7001,h3"), "redis+cluster://h1:7000,[::1]:7001,h3:6379");
    let url = NodeUrl::parse("redis+cluster://me:secret@h1:7000,h2/0").unwrap();
    assert_eq!(url.hosts, [("h1".to_owned(), 7000), ("h2".to_owned(), 6379)]);
    let server = url.with_host("10.0.0.7", 7003);
    assert_eq!((server.to_string().as_str(), server.hosts.len()), ("redis://10.0.0.7:7003/0", 0));
    assert_eq!(server.info.redis_settings().password(), Some("secret"));
    for (bad, why) in [
        ("redis+cluster://me:secret@h1,h2/1", "database 0 only"),
        ("redis+cluster://me:secret@h1,,h2", "host is missing"),
        ("redis+cluster://me:secret@h1:x,h2", ""),
        ("redis+cluster://me:secret@", "host is missing"),
        ("redis+cluster://h1,h2?pass=secret", "unknown parameter"),
    ] {
        let message = refusal(bad);
        assert!(message.contains(why) && !message.contains("secret"), "{message}");
    }
}

#[test]
fn bad_urls_are_refused_by_name_and_never_show_the_password() {
    for bad in [
        "redis://:secret@",
        "redis://user:secret@host:notaport",
        "redis://:sec#secret@host",
        "redis://:secret@host/x",
        "redis://:secret@host/-1",
        "redis://:secret@host:0",
        "http://:secret@host",
        "redis:user:secret@host",
        "redis://:secret@host?db=3",
        "redis://:sec:secret@secret@ho st",
        "redis+unix://?pass=secret",
        "redis+unix://relative/path?pass=secret&db=x",
        "redis+unix:///path?db=x&pass=secret",
        "redis+unix:///pa:th?db=x&pass=a@secret",
        "ann:secret://?pass=x@host:port",
        "redis://ann:a@b?secret@host",
        "redis://ann:a@b?secret=c@host",
        "unix:/run/redis.sock?user=me@work&pass=secret",
        "redis+unix://run:redis?user=me@work&pass=secret",
        "redis://ann:a?b@host?pass=secret",
        "redis+unix:///a.sock?db=1&amp;pass=secret",
        "redis+unix:///a.sock&pass=secret",
        "redis+unix:///a.sock;pass=secret",
        "redis://secret@host:port",
        "redis://host:port/secret@host",
        "redis+unix:///a.sock?db=x;pass=secret",
        "redis+unix:///a.sock?p%61ss=secret&what=1",
        "redis+unix:///a.sock?pa\tss=secret&what=1",
        "redis+unix:///a.sock?pass%3Dsecret",
        "redis+unix:///a.sock?user=me;pass=secret&what=1",
        "redis+sentinel://:secret@h1,h2",
        "redis+sentinel://:secret@h1,,h2/main",
        "redis+sentinel://:secret@h1,h2,H1:26379/main",
        "redis+sentinel://:secret@h1,h2/main/x",
        "redis+sentinel://:secret@h1,h2/ma%20in",
        "redis+sentinel://:secret@h1,ho st/main",
        "redis+sentinel://h1,h2/main?sentinel_pass=secret",
        "redis+sentinel://h1,h2/main?sentinel_password=a@secret&pass=secret",
        "redis+unix+sentinel://:secret@h1/main",
    ] {
        let message = refusal(bad);
        assert!(!message.contains("secret"), "{message}");
        assert!(message.starts_with("node URL `"), "{message}");
    }
    for bad in
        ["", "localhost:6379", "redis://", "redis:///0", "redis://host/0#x", "redis://0.0.0.0", "://", "redis://ü:ö@"]
    {
        refusal(bad);
    }
    for no_host in ["redis://", "redis:///0", "redis://:6379/", "redis://:pa/ss@", "redis://:secret@/0"] {
        assert!(refusal(no_host).contains("host is missing"), "{no_host}");
    }
    for no_number in ["redis://host:99999/", "redis://:secret@host:x/"] {
        assert!(refusal(no_number).contains("not a valid URL"), "{no_number}");
    }
    assert!(refusal("redis://host?db=3").contains("unknown parameter `db`"));
    assert!(!refusal("redis://ho\u{7f}st\n:x").contains(char::is_control));
}

#[test]
fn special_characters_of_a_password_are_to_be_encoded() {
    for bad in ["#", "/", "?"].map(|sign| format!("pa{sign}ss")) {
        for url in [format!("redis://:{bad}@host/"), format!("redis://ann:12{bad}@host:6379/2")] {
            assert!(refusal(&url).contains("percent-encode"), "{url}");
        }
        for url in [format!("redis+sentinel://:{bad}@h1,h2/main"), format!("redis+cluster://:{bad}@h1,h2")] {
            assert!(refusal(&url).contains("percent-encode"), "{url}");
        }
    }
    assert!(!refusal("redis://host:x/").contains("percent-encode"));
}

/// Tests are compiled with the feature `tls`, so this calls a function that takes it as a parameter.
#[test]
fn input_11_tls_without_the_feature() {
    for scheme in ["rediss", "valkeys", "REDISS"] {
        let url = format!("{scheme}://host/");
        assert!(check_scheme(&url, false).unwrap_err().contains("feature `tls`"), "{scheme}");
        assert_eq!(check_scheme(&url, true), Ok(()), "{scheme}");
    }
    assert_eq!(NodeUrl::parse("rediss://host").is_ok(), cfg!(feature = "tls"));
}

#[test]
fn a_cluster_has_one_url_for_each_host() {
    let all = cluster_servers("redis+cluster://me:pw@h1:7000,h2,[::1]:7001/0").unwrap();
    assert_eq!(all, ["redis://me:pw@h1:7000/0", "redis://me:pw@h2/0", "redis://me:pw@[::1]:7001/0"]);
    assert_eq!(cluster_servers("REDISS+Cluster://h1").unwrap(), ["rediss://h1"]);
    assert_eq!(cluster_servers("redis://h1,h2"), None);
}
