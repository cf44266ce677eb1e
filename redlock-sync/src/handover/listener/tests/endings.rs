use parking_lot::Mutex;

use super::*;

#[test]
fn closing_wakes_all() {
    let server = Server::start();
    let listener = listener(server.url());
    let (tell, told) = mpsc::channel();
    let threads = crowd(&listener, 20, &tell);
    told.iter().take(20).for_each(drop);
    let start = now();
    listener.close();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(now().since(start) < Duration::from_secs(2), "the reader too");
    assert_eq!(listener.begin().sleep(soon(), &Cancelling::default()), Woken::Closed);
    eventually("the server has seen it", SOON, || subscribers(&server) == 0);
}

#[test]
fn closing_while_the_server_hangs_takes_a_second() {
    let server = Server::start();
    let listener = listener(server.url());
    let (wait, _) = wait(&listener);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| wait.sleep(soon(), &Cancelling::default()));
        SystemClock.sleep(Duration::from_millis(50));
        server.stop();
        let start = now();
        listener.close();
        assert_eq!(sleeper.join().unwrap(), Woken::Closed);
        assert!(now().since(start) < Duration::from_secs(2));
        server.cont();
    });
}

#[test]
fn closing_before_there_is_a_connection() {
    let server = Server::start();
    server.stop();
    let listener = listener(server.url());
    let wait = listener.begin();
    listener.close();
    assert_eq!(wait.sleep(soon(), &Cancelling::default()), Woken::Closed);
    server.cont();
}

#[test]
fn everything_ends_with_the_client() {
    let server = Server::start();
    let listener = listener(server.url());
    drop(wait(&listener).0);
    drop(listener);
    eventually("the connections are closed", SOON, || server.info("connected_clients").as_deref() == Some("1"));
}

/// The waits and fencing tokens of the grants that came too late.
type LateGrants = Arc<Mutex<Vec<(String, u64)>>>;

fn with_late_grants(server: &Server) -> (Arc<Listener>, LateGrants) {
    let came = LateGrants::default();
    let theirs = Arc::clone(&came);
    let on_late = Box::new(move |wait: &str, grant: &Notification| theirs.lock().push((wait.to_owned(), grant.fence)));
    (listener_with(std::iter::once(server.url()), on_late), came)
}

#[test]
fn a_grant_to_a_wait_that_is_over_comes_too_late() {
    let server = Server::start();
    let (listener, came) = with_late_grants(&server);
    let (alive, subscription) = wait(&listener);
    let (over, plain) = (listener.begin(), listener.begin());
    over.outlive();
    let numbers = [over.number, plain.number, over.number];
    drop((over, plain));
    for number in numbers.into_iter().chain([alive.number]) {
        assert!(notify(&server, &subscription, number));
    }
    assert_eq!(fence(alive.sleep(soon(), &Cancelling::default())), alive.number);
    eventually("they come", SOON, || came.lock().len() == 3);
    let mut late = came.lock().clone();
    let mut sent = numbers.map(|number| (subscription.wait_id(number).to_string(), number));
    late.sort_unstable();
    sent.sort_unstable();
    assert_eq!(late, sent);
    assert_eq!(alive.subscription(), Some(subscription));
}

#[test]
fn a_grant_that_a_wait_did_not_take_comes_too_late() {
    let server = Server::start();
    let (listener, came) = with_late_grants(&server);
    let (alive, subscription) = wait(&listener);
    let over = listener.begin();
    let number = over.number;
    for number in [number, alive.number] {
        assert!(notify(&server, &subscription, number));
    }
    alive.sleep(soon(), &Cancelling::default());
    over.outlive();
    drop(over);
    eventually("it comes", SOON, || *came.lock() == [(subscription.wait_id(number).to_string(), number)]);
}

#[test]
fn with_the_last_wait_the_channel_of_those_that_outlive_it_ends() {
    let server = Server::start();
    let listener = listener(server.url());
    let mut channels = Vec::new();
    for _ in 0..2 {
        let (last, subscription) = wait(&listener);
        last.outlive();
        assert_eq!(subscribers(&server), 1);
        drop(last);
        eventually("no connection listens there", SOON, || subscribers(&server) == 0);
        channels.push(subscription.channel);
    }
    let (_wait, subscription) = wait(&listener);
    channels.push(subscription.channel);
    channels.sort_unstable();
    channels.dedup();
    assert_eq!(channels.len(), 3);
}
