//! Bodies of tasks as JSON, by feature `json`.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::job::Job;
use super::task::{Task, TaskInfo};
use crate::error::Error;
use crate::names::escaped;

impl Task {
    /// Makes a task like [`Task::new`], with this value as JSON for its body. Needs feature `json`.
    ///
    /// # Errors
    /// [`Config`](Error::Config) if the value cannot be JSON, such as a map whose keys are not strings.
    ///
    /// ```
    /// use redlock_sync::Task;
    /// let task = Task::json(&("ann@a.example", 42))?.id("invoice:42");
    /// # let _ = task;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn json<T: Serialize + ?Sized>(body: &T) -> Result<Task, Error> {
        let text = serde_json::to_vec(body);
        text.map(Task::new).map_err(|error| Error::config(format!("the body of a task cannot be JSON: {error}")))
    }
}

impl Job {
    /// Reads the body as JSON. Needs feature `json`. If a body cannot be read, the next attempt cannot read it either,
    /// so [`fail`](Job::fail) the job.
    ///
    /// # Errors
    /// [`Config`](Error::Config) if the body is not JSON, or not of this type.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// use redlock_sync::Task;
    /// mails.push(Task::json(&("ann@a.example", 42))?)?;
    /// let job = mails.claim()?;
    /// match job.json::<(String, u32)>() {
    ///     Ok((_address, number)) => assert_eq!(number, 42),
    ///     Err(error) => return job.fail(error),
    /// }
    /// job.ack()?;
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        parse_body(self.id(), self.body())
    }
}

impl TaskInfo {
    /// Reads the body as JSON. Needs feature `json`.
    ///
    /// # Errors
    /// The errors of [`Job::json`].
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// # let mails = redlock_sync::Redlock::open(&url)?.queue("emails");
    /// mails.push(redlock_sync::Task::json(&("ann@a.example", 42))?)?;
    /// let (address, number): (String, u32) = mails.peek(1)?[0].json()?;
    /// assert_eq!((address.as_str(), number), ("ann@a.example", 42));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        parse_body(self.id(), self.body())
    }
}

fn parse_body<T: DeserializeOwned>(id: &str, body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body)
        .map_err(|error| Error::config(format!("the body of task `{}` cannot be read as JSON: {error}", escaped(id))))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_no_json_is_told() {
        let message = |error: Error| error.to_string();
        let error = message(Task::json(&BTreeMap::from([((1, 2), 3)])).unwrap_err());
        assert!(error.contains("cannot be JSON"), "{error}");
        let error = message(parse_body::<u32>("a\n", b"{").unwrap_err());
        assert!(error.contains("task `a\\n`") && error.contains("line 1"), "{error}");
        assert_eq!(parse_body::<Option<u32>>("a", b"null"), Ok(None));
    }
}
