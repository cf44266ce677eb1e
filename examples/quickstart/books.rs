//! The books: the sales, and the facts that must not occur in them.

use rusqlite::{OptionalExtension, params};

use crate::director::Incidents;
use crate::store::{Outcome, ShopError, Store};

/// The progress: the number of settled lines, and the number of sold orders.
pub(crate) fn progress(store: &Store) -> Result<(usize, usize), ShopError> {
    Ok((count(store, "SELECT count(DISTINCT number) FROM line")?, count(store, "SELECT count(*) FROM sale")?))
}

/// The worker that settled the order, if one has.
pub(crate) fn settled_by(store: &Store, order: &str) -> Result<Option<String>, ShopError> {
    let query = "SELECT worker FROM orders WHERE id = ?1";
    Ok(store.keep_quiet().query_row(query, params![order], |row| row.get(0)).optional()?)
}

fn count(store: &Store, query: &str) -> Result<usize, ShopError> {
    let count: i64 = store.keep_quiet().query_row(query, [], |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Facts, each with a query for its number.
const FACTS: [(&str, &str); 5] = [
    ("orders, told apart by their numbers", "SELECT count(DISTINCT id) FROM orders"),
    ("units on stock at the beginning", "SELECT sum(units) FROM stock"),
    ("units sold, as the stock has it", "SELECT sum(sold) FROM stock"),
    ("units sold, as the sales have it", "SELECT sum(count) FROM sale"),
    (
        "hand-overs of a stock lock to another process",
        "SELECT count(*) FROM (SELECT worker, lag(worker) OVER (PARTITION BY sku ORDER BY rowid) AS before FROM sale)
         WHERE worker <> before",
    ),
];

/// Errors that must not occur, each with a query that counts them.
const PROOF: [(&str, &str); 7] = [
    (
        "units that were sold twice",
        "WITH RECURSIVE unit (sku, number, last) AS (
             SELECT sku, first, first + count - 1 FROM sale
             UNION ALL SELECT sku, number + 1, last FROM unit WHERE number < last)
         SELECT count(*) FROM (SELECT 1 FROM unit GROUP BY sku, number HAVING count(*) > 1)",
    ),
    ("orders that were sold twice", "SELECT count(*) FROM (SELECT 1 FROM sale GROUP BY id HAVING count(*) > 1)"),
    ("orders that were settled twice", "SELECT count(*) FROM (SELECT 1 FROM orders GROUP BY id HAVING count(*) > 1)"),
    ("lines that were settled twice", "SELECT count(*) FROM (SELECT 1 FROM line GROUP BY number HAVING count(*) > 1)"),
    (
        "goods whose stock and sales differ",
        "SELECT count(*) FROM stock WHERE sold <> (
         SELECT coalesce(sum(count), 0) FROM sale WHERE sale.sku = stock.sku)",
    ),
    (
        "sales that overlapped another one from the same stock",
        "SELECT count(*) FROM (SELECT began, max(ended) OVER (
             PARTITION BY sku ORDER BY began ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM sale)
         WHERE began < before",
    ),
    (
        "fencing tokens of a stock that did not rise",
        "SELECT count(*) FROM (SELECT fence, lag(fence) OVER (PARTITION BY sku ORDER BY rowid) AS before FROM sale)
         WHERE fence <= before",
    ),
];

pub(crate) struct Books {
    outcomes: Vec<(&'static str, usize)>,
    facts: Vec<(&'static str, usize)>,
    proof: Vec<(&'static str, usize)>,
    open: usize,
    stale: usize,
    /// The orders at which a worker was killed, paused or told to stop, each with that event and the worker that
    /// settled the order.
    handed_over: Vec<(String, &'static str, Option<String>)>,
}

impl Books {
    pub(crate) fn read(store: &Store, incidents: &Incidents, lines: usize, unusable: usize) -> Result<Self, ShopError> {
        let all = |queries: &[(&'static str, &str)]| {
            queries.iter().map(|(what, query)| Ok((*what, count(store, query)?))).collect::<Result<Vec<_>, ShopError>>()
        };
        let mut outcomes = Vec::new();
        for outcome in Outcome::ALL {
            let query = format!("SELECT count(*) FROM line WHERE outcome = '{}'", outcome.text());
            outcomes.push((outcome.text(), count(store, &query)?));
        }
        outcomes.push(("refused: not an order", unusable));
        let mut handed_over = Vec::new();
        let incidents_at =
            [(&incidents.killed, "killed"), (&incidents.paused, "paused"), (&incidents.stopped, "told to stop")];
        for (order, what) in incidents_at {
            if let Some(order) = order {
                handed_over.push((order.clone(), what, settled_by(store, order)?));
            }
        }
        let open = lines - progress(store)?.0;
        Ok(Self { outcomes, facts: all(&FACTS)?, proof: all(&PROOF)?, open, stale: incidents.stale, handed_over })
    }

    pub(crate) fn print(&self, with_locks: bool) {
        let row = |what: &str, number: usize| println!("  {what:<55}{number:>6}");
        println!("\nLines of the feed");
        self.outcomes.iter().for_each(|(what, number)| row(what, *number));
        row("in all", self.outcomes.iter().map(|(_, number)| number).sum());
        println!("\nWork");
        self.facts.iter().for_each(|(what, number)| row(what, *number));
        row("late writes that the fence refused", self.stale);
        for (order, what, by) in &self.handed_over {
            let by = by.as_deref().unwrap_or("no worker");
            println!("  order {order}, whose worker was {what} at it, was settled by {by}");
        }
        println!("\nProof");
        row("lines that no worker settled", self.open);
        self.proof.iter().for_each(|(what, number)| row(what, *number));
        println!("\n{}", self.verdict(with_locks));
    }

    fn verdict(&self, with_locks: bool) -> &'static str {
        match (self.are_right(with_locks), with_locks) {
            (true, true) => "OK: no unit was sold twice",
            (true, false) => "no damage this time: that was luck",
            (false, true) => "BROKEN",
            (false, false) => "DAMAGE: this is what happens without locks",
        }
    }

    /// Returns true if the books are correct. With locks, the events that the example shows must also have happened.
    pub(crate) fn are_right(&self, with_locks: bool) -> bool {
        let happened = self.stale > 0 && self.handed_over.len() == 3;
        self.open == 0 && self.proof.iter().all(|(_, number)| *number == 0) && (happened || !with_locks)
    }
}
