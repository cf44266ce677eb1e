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

/// Returns a handler for late notifications of an ended wait, and the fencing tokens of the notifications that it got.
fn ended() -> (OnLateNotification, Arc<Mutex<Vec<u64>>>) {
    let came = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&came);
    (Box::new(move |notification| theirs.lock().push(notification.fence)), came)
}

#[test]
fn a_grant_to_a_wait_that_is_over_goes_to_its_handler() {
    let server = Server::start();
    let listener = listener(server.url());
    let (alive, subscription) = wait(&listener);
    let (over, plain) = (listener.begin(), listener.begin());
    let (ended, came) = ended();
    over.watch_ended(ended);
    let (over, plain) = (over.number, plain.number);
    for number in [over, plain, over, alive.number] {
        assert!(notify(&server, &subscription, number));
    }
    assert_eq!(fence(alive.sleep(soon(), &Cancelling::default())), alive.number);
    assert_eq!(*came.lock(), [over, over]);
    assert_eq!(alive.subscription(), Some(subscription));
}

#[test]
fn what_was_kept_for_a_wait_goes_to_its_handler() {
    let server = Server::start();
    let listener = listener(server.url());
    let (alive, subscription) = wait(&listener);
    let over = listener.begin();
    let number = over.number;
    for number in [number, alive.number] {
        assert!(notify(&server, &subscription, number));
    }
    alive.sleep(soon(), &Cancelling::default());
    let (ended, came) = ended();
    over.watch_ended(ended);
    assert_eq!(*came.lock(), [number]);
    assert_eq!(over.take(), None);
}

#[test]
fn with_the_last_wait_the_channel_of_its_ended_waits_ends() {
    let server = Server::start();
    let listener = listener(server.url());
    let mut channels = Vec::new();
    for _ in 0..2 {
        let (last, subscription) = wait(&listener);
        last.watch_ended(ended().0);
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
