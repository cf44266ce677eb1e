//! Locks on the server of a client of the `redis` crate.

use redis::{Client, Commands};
use redlock_sync::{Error, Redlock};
use redlock_tests::{Server, patient, servers};

#[test]
fn address_database_and_login_are_those_of_the_client() {
    let server = Server::builder().password("p@ss").unix_socket().start();
    let tcp = Client::open(format!("redis://:p%40ss@{}/2", server.addr())).unwrap();
    let path = server.unix_url();
    let path = path.trim_start_matches("redis+unix://").split('?').next().unwrap().to_owned();
    let socket = Client::open(format!("redis+unix://{path}?db=3&pass=p%40ss")).unwrap();
    for client in [tcp, socket] {
        let locks = patient().client(&client).build().unwrap();
        let guard = locks.mutex("order:42").lock().unwrap();
        let held: String = client.get_connection().unwrap().get("order:42").unwrap();
        assert_eq!(held, guard.id().as_str());
        guard.unlock().unwrap();
        assert!(!format!("{:?}", Redlock::builder().client(&client)).contains("p@ss"));
    }
}

#[test]
fn clients_and_urls_are_nodes_alike() {
    let servers = servers(3);
    let client = Client::open(servers[1].url()).unwrap();
    let builder = patient().node(servers[0].url()).client(&client).node(servers[2].url()).restart_guard(false);
    let guard = builder.clone().build().unwrap().mutex("order:42").lock().unwrap();
    assert!(servers.iter().all(|server| server.get("order:42").as_deref() == Some(guard.id().as_str())));
    let error = builder.client(&client).build().unwrap_err();
    assert!(error.to_string().contains("are the same server"), "{error}");
    guard.unlock().unwrap();
}

#[cfg(feature = "tls")]
#[test]
fn what_cannot_be_taken_over_is_refused() {
    fn refused(client: &Client) -> String {
        let error = patient().client(client).build().unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        error.to_string()
    }
    let insecure = Client::open("rediss://:secret@127.0.0.1:7000/#insecure").unwrap();
    let error = refused(&insecure);
    assert!(error.contains("127.0.0.1:7000") && error.contains("does not verify"), "{error}");
    assert!(!error.contains("secret"), "{error}");
    let own = redis::TlsCertificates { client_tls: None, root_cert: Some(Vec::new()) };
    let error = refused(&Client::build_with_tls("rediss://127.0.0.1:7000/", own).unwrap());
    assert!(error.contains("Builder::tls"), "{error}");
}
