use std::hint::black_box;
use std::sync::mpsc;

use crate::handover::rig::{Rig, SOON, brisk, ms};

/// As much stack as any other thread has: a small one would overflow, which aborts the process.
#[test]
#[allow(clippy::large_stack_arrays, reason = "this is about the stack")]
fn a_handler_of_a_loss_has_an_ordinary_stack() {
    let rig = Rig::start(1);
    let guard = brisk(&rig.urls(), ms(600)).mutex("order:42").renew(false).lock().unwrap();
    let (tell, told) = mpsc::channel();
    guard.on_lost(move |error| {
        let large = black_box([1_u8; 400 * 1024]);
        let sum: usize = large.iter().map(|&n| usize::from(n)).sum();
        tell.send((error.is_lost(), sum)).unwrap();
    });
    assert_eq!(told.recv_timeout(SOON), Ok((true, 400 * 1024)));
}
