//! The shop's `SQLite` file. It is the resource that the locks protect, and it knows their fencing tokens.

use std::fmt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redlock_examples::now;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, ffi, params};

use crate::feed::Line;

/// The table `fence` has one row for each lock, with the largest token that came with a write. The trigger refuses a
/// smaller token, and with it the whole transaction. So a worker that was paused beyond its lease can do no harm.
///
/// No other table has a key or a constraint that would hide a race.
const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE fence (name TEXT PRIMARY KEY, token INTEGER NOT NULL);
    CREATE TRIGGER fence BEFORE UPDATE ON fence WHEN NEW.token < OLD.token
        BEGIN SELECT RAISE(ABORT, 'stale fencing token'); END;
    CREATE TABLE stock (sku TEXT PRIMARY KEY, units INTEGER NOT NULL, sold INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE line (number INTEGER, outcome TEXT, worker TEXT);
    CREATE TABLE orders (id TEXT, customer TEXT, sku TEXT, quantity INTEGER, worker TEXT);
    CREATE TABLE sale (id TEXT, sku TEXT, first INTEGER, count INTEGER, worker TEXT, fence INTEGER, began INTEGER, ended INTEGER);";

/// The outcome of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Sold,
    OutOfStock,
    NoSuchGoods,
    /// The order was settled before, with the same contents.
    Duplicate,
    /// The order was settled before, with different contents.
    Clash,
}

impl Outcome {
    pub(crate) const ALL: [Self; 5] = [Self::Sold, Self::OutOfStock, Self::NoSuchGoods, Self::Duplicate, Self::Clash];

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Sold => "sold",
            Self::OutOfStock => "refused: out of stock",
            Self::NoSuchGoods => "refused: no such goods",
            Self::Clash => "refused: contradicts an earlier line",
            Self::Duplicate => "settled before: sent twice",
        }
    }
}

/// The fencing tokens of the locks under which something is written; `None` without a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fences {
    pub(crate) order: Option<u64>,
    pub(crate) stock: Option<u64>,
}

pub(crate) struct Stock {
    pub(crate) units: u32,
    pub(crate) sold: u32,
}

pub(crate) struct Sale {
    /// The number of the first unit.
    pub(crate) first: u32,
    /// The time at which the stock was read.
    pub(crate) began: Duration,
}

pub(crate) struct Store {
    connection: Mutex<Connection>,
    worker: String,
}

impl Store {
    /// Creates the file.
    pub(crate) fn create(file: &Path, goods: &[(String, u32)]) -> Result<Self, ShopError> {
        let store = Self::open(file, "director")?;
        let connection = store.keep_quiet();
        connection.execute_batch(SCHEMA)?;
        for (sku, units) in goods {
            connection.execute("INSERT INTO stock (sku, units) VALUES (?1, ?2)", params![sku, units])?;
        }
        drop(connection);
        Ok(store)
    }

    pub(crate) fn open(file: &Path, worker: &str) -> Result<Self, ShopError> {
        let connection = Connection::open(file)?;
        connection.busy_timeout(Duration::from_secs(20))?;
        connection.execute_batch("PRAGMA synchronous = OFF")?; // The file is deleted at the end.
        Ok(Self { connection: Mutex::new(connection), worker: worker.to_owned() })
    }

    /// The connection, which the threads of this process share.
    pub(crate) fn keep_quiet(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_settled(&self, line: &Line) -> Result<bool, ShopError> {
        let connection = self.keep_quiet();
        let mut found = connection.prepare("SELECT 1 FROM line WHERE number = ?1")?;
        Ok(found.exists([line.number.cast_signed()])?)
    }

    /// Returns whether the order was settled before: `true` with the same contents, `false` with different contents.
    pub(crate) fn order_on_file(&self, line: &Line) -> Result<Option<bool>, ShopError> {
        let query = "SELECT customer = ?2 AND sku = ?3 AND quantity = ?4 FROM orders WHERE id = ?1";
        let values = params![line.order, line.customer, line.sku, line.quantity];
        Ok(self.keep_quiet().query_row(query, values, |row| row.get(0)).optional()?)
    }

    pub(crate) fn stock(&self, sku: &str) -> Result<Option<Stock>, ShopError> {
        let query = "SELECT units, sold FROM stock WHERE sku = ?1";
        let read = |row: &rusqlite::Row<'_>| Ok(Stock { units: row.get(0)?, sold: row.get(1)? });
        Ok(self.keep_quiet().query_row(query, [sku], read).optional()?)
    }

    /// Writes the outcome of a line. If a token is stale, nothing is written.
    pub(crate) fn settle(&self, line: &Line, outcome: Outcome, fences: Fences) -> Result<Outcome, ShopError> {
        self.write(line, outcome, fences, |_| Ok(()))
    }

    /// Writes a sale.
    pub(crate) fn sell(&self, line: &Line, sale: &Sale, fences: Fences) -> Result<Outcome, ShopError> {
        self.write(line, Outcome::Sold, fences, |write| {
            let last = sale.first + line.quantity - 1;
            write.execute("UPDATE stock SET sold = ?2 WHERE sku = ?1", params![line.sku, last])?;
            let (fence, began, ended) = (fences.stock.map(u64::cast_signed), micros(sale.began), micros(now()));
            let values = params![line.order, line.sku, sale.first, line.quantity, self.worker, fence, began, ended];
            write.execute("INSERT INTO sale VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)", values)?;
            Ok(())
        })
    }

    fn write(
        &self,
        line: &Line,
        outcome: Outcome,
        fences: Fences,
        more: impl FnOnce(&Transaction<'_>) -> Result<(), ShopError>,
    ) -> Result<Outcome, ShopError> {
        let mut connection = self.keep_quiet();
        let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        pass_fence(&write, &format!("order:{}", line.order), fences.order)?;
        pass_fence(&write, &format!("stock:{}", line.sku), fences.stock)?;
        more(&write)?;
        if !matches!(outcome, Outcome::Duplicate | Outcome::Clash) {
            let values = params![line.order, line.customer, line.sku, line.quantity, self.worker];
            write.execute("INSERT INTO orders VALUES (?1, ?2, ?3, ?4, ?5)", values)?;
        }
        let values = params![line.number.cast_signed(), outcome.text(), self.worker];
        write.execute("INSERT INTO line VALUES (?1, ?2, ?3)", values)?;
        write.commit()?;
        Ok(outcome)
    }
}

/// Writes the token to `fence`, whose trigger refuses a stale one.
fn pass_fence(write: &Transaction<'_>, name: &str, token: Option<u64>) -> Result<(), ShopError> {
    let Some(token) = token else { return Ok(()) };
    let insert = "INSERT INTO fence VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET token = excluded.token";
    match write.execute(insert, params![name, token.cast_signed()]) {
        Err(rusqlite::Error::SqliteFailure(error, _)) if error.extended_code == ffi::SQLITE_CONSTRAINT_TRIGGER => {
            let query = "SELECT token FROM fence WHERE name = ?1";
            let seen: i64 = write.query_row(query, [name], |row| row.get(0))?;
            Err(ShopError::Stale(format!("{name} with fencing token {token}, after {seen}")))
        }
        other => other.map(drop).map_err(ShopError::from),
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// The reason why a line could not be settled.
#[derive(Debug)]
pub(crate) enum ShopError {
    /// An error of the lock. `#[distributed_lock]` needs only this conversion.
    Lock(redlock_sync::Error),
    /// The fence refused a write.
    Stale(String),
    File(rusqlite::Error),
}

impl From<redlock_sync::Error> for ShopError {
    fn from(error: redlock_sync::Error) -> Self {
        Self::Lock(error)
    }
}

impl From<rusqlite::Error> for ShopError {
    fn from(error: rusqlite::Error) -> Self {
        Self::File(error)
    }
}

impl fmt::Display for ShopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Stale(what) => write!(f, "stale write refused: {what}"),
            Self::File(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ShopError {}
