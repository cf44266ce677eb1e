//! Puts COUNT jobs into a queue of BullMQ one by one, as many in hundreds, and has one worker end them all.
//! `tests/src/foreign/queues.rs` says what the program is told and what it prints.

use std::env;
use std::error::Error;
use std::time::Instant;

use bullmq::options::RedisConnectionOptions;
use bullmq::types::RemoveOnFinish;
use bullmq::worker::WorkerEvent;
use bullmq::{BulkJob, Job, JobOptions, Queue, QueueOptions, Worker, WorkerOptions};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [url, count, threads] = &args[..] else { return Err("URL COUNT THREADS".into()) };
    let count: u32 = count.parse()?;
    let connection = RedisConnectionOptions::new().url(url);
    let options = JobOptions::default().remove_on_complete(RemoveOnFinish::Bool(true));
    let settings = QueueOptions::new().connection(connection.clone()).default_job_options(options.clone());
    let queue = Queue::with_options("mails", settings).await?;
    let body = json!({ "text": "x".repeat(100) });

    let began = Instant::now();
    for _ in 0..count {
        queue.add("mail", &body).await?;
    }
    let one = began.elapsed().as_secs_f64();
    for _ in 0..count.div_ceil(100) {
        let hundred = (0..100).map(|_| BulkJob::with_options("mail", &body, options.clone())).collect();
        queue.add_bulk(hundred).await?;
    }
    let many = began.elapsed().as_secs_f64() - one;

    let all = count + 100 * count.div_ceil(100);
    let start = Instant::now();
    let settings = WorkerOptions::default().connection(connection).concurrency(threads.parse()?);
    let worker = Worker::with_options("mails", |_job: Job, _token| async move { Ok(Value::Null) }, settings).await?;
    let mut done = 0;
    while done < all {
        match worker.next_event().await {
            Some(WorkerEvent::Completed { .. }) => done += 1,
            Some(WorkerEvent::Failed { error, .. } | WorkerEvent::Error(error)) => return Err(error.into()),
            Some(_) => {}
            None => return Err("the worker ended".into()),
        }
    }
    let ended = start.elapsed().as_secs_f64();
    let rate = |jobs: u32, seconds: f64| f64::from(jobs) / seconds;
    println!("{} {} {}", rate(count, one), rate(all - count, many), rate(all, ended));
    Ok(())
}
