//! What a reader sees of a state of model (a).

use super::state::{Client, Kind, Phase, State, client_of, is_granted, owner, wait_of};
use crate::search::Told;

impl<const N: usize> State<N> {
    pub(super) fn premises(&self) -> u32 {
        let any = |is_so: &dyn Fn(&Client) -> bool| self.clients.iter().any(is_so);
        let is_dead = |client: usize| self.clients[client].phase == Phase::Dead;
        let lines = || self.lines.iter().filter(|line| line.calls[0].kind != Kind::None);
        let is_over = |client: &Client| client.pushes.iter().any(|push| *push != 0 && wait_of(*push) != client.wait);
        let (owes, is_left) = (any(&|c| c.owed != [0; 2]), any(&|c| c.leftovers != [0; 2]));
        let all = [
            any(&Client::passes_check),
            any(&|client| client.passes_check() && is_granted(client.token)),
            any(&Client::passes_check) && any(&Client::is_waiting),
            self.queue[0] != 0,
            lines().any(|line| !line.is_broken),
            lines().any(|line| line.is_broken),
            any(&|client| client.pushes.iter().any(|push| *push != 0 && wait_of(*push) == client.wait)),
            any(&is_over),
            any(&|client| client.gone != 0),
            owes,
            is_left,
            self.key != 0 && is_dead(owner(self.key)),
            self.queue.iter().any(|wait| *wait != 0 && is_dead(client_of(*wait))),
            any(&|client| client.phase == Phase::Holds && client.deadline == 0),
            any(&|client| client.is_duplicate),
        ];
        all.iter().enumerate().fold(0, |bits, (i, is_so)| bits | u32::from(*is_so) << i)
    }
}

fn named(token: u16) -> String {
    let name = |id: u8| char::from(b'A' + client_of(id) as u8);
    match token {
        0 => "free".to_owned(),
        _ if is_granted(token) => format!("granted to {}", name(wait_of(token))),
        _ => format!("{}'s token {}", name(token as u8), token & 15),
    }
}

pub(super) fn tell<const N: usize>(told: Told, after: &State<N>) -> String {
    let name = |client: usize| char::from(b'A' + client as u8);
    let text = told.text.replace("{c}", &name(told.client).to_string()).replace("{t}", &named(told.token));
    let waits: String = after.queue.iter().filter(|wait| **wait != 0).map(|wait| name(client_of(*wait))).collect();
    let holders: Vec<String> = (0..N)
        .filter(|&i| after.clients[i].passes_check())
        .map(|i| format!("{} for {}", name(i), after.clients[i].deadline))
        .collect();
    let key = if after.key == 0 { named(0) } else { format!("{} for {}", named(after.key), after.ttl) };
    let queue = if waits.is_empty() { String::new() } else { format!(", queue {waits}") };
    let holders = if holders.is_empty() { String::new() } else { format!("; holds: {}", holders.join(", ")) };
    format!("{text:<76} | {key}{queue}{holders}")
}
