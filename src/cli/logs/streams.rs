//! Follows many logs at once, also of pods that are created later: one thread for each container.
//!
//! Never: chooses pods; the caller offers those that it wants followed, again and again.
//! Start reading at [`LogStreams::follow_pods`].

use super::lines::{LineStyle, LineWriter, colour};
use crate::apiserver::log::{self, LogSource};
use crate::apiserver::remote::{object_path, refusal};
use crate::cli::cluster::one_pod::PodContainers;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::client::{ApiClient, ClientRequest};
use crate::kinds;
use crate::object::{Object, time};
use crate::runtime::logs::LogOptions;
use colored::Colorize;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Form of the prefix of each line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PrefixForm {
    /// No prefix.
    None,
    /// `[pod/web/main] `, as kubectl prints it.
    Kubectl,
    /// `web main | `, padded, for reading.
    Column,
}

/// A stream: a container of a pod, by the pod's uid.
type StreamKey = (String, String);

/// Logs that are being followed, and those that have ended.
pub struct LogStreams {
    place: LogPlace,
    options: LogOptions,
    style: Arc<LineStyle>,
    prefixes: Prefixes,
    /// The most streams that are open at once.
    most: usize,
    /// Whether each stream is still open.
    streams: HashMap<StreamKey, bool>,
    ended: Receiver<(StreamKey, CliResult)>,
    report: Sender<(StreamKey, CliResult)>,
}

impl LogStreams {
    /// Creates an empty set of streams. At most `most` are open at the same time.
    pub fn new(place: LogPlace, options: LogOptions, style: LineStyle, form: PrefixForm, most: usize) -> LogStreams {
        let (report, ended) = channel();
        let style = Arc::new(LineStyle { whole_lines: true, ..style });
        let prefixes = Prefixes::new(form);
        LogStreams { place, options, style, prefixes, most, streams: HashMap::new(), ended, report }
    }

    /// Opens the logs of these pods' containers that have been started and are not followed yet. Returns the number of
    /// containers for which there was no room.
    pub fn follow_pods<'a>(
        &mut self,
        pods: impl IntoIterator<Item = &'a Object>,
        choose: impl Fn(&Object) -> Vec<String>,
    ) -> usize {
        let mut left_out = 0;
        for pod in pods {
            for container in choose(pod).into_iter().filter(|container| has_begun(pod, container)) {
                let key = (pod.uid().to_owned(), container);
                if self.streams.contains_key(&key) {
                    continue;
                }
                if self.count_open() >= self.most {
                    left_out += 1;
                    continue;
                }
                self.open(pod, key);
            }
        }
        left_out
    }

    /// Opens one log, also of a container that has not been started, which fails with the reason for that.
    pub fn follow_container(&mut self, pod: &Object, container: &str) {
        self.open(pod, (pod.uid().to_owned(), container.to_owned()));
    }

    /// Number of open streams.
    pub fn count_open(&self) -> usize {
        self.streams.values().filter(|is_open| **is_open).count()
    }

    /// Takes note of streams that have ended, and returns the failures among them.
    pub fn take_ended(&mut self) -> Vec<Failure> {
        let mut failures = Vec::new();
        while let Ok((key, done)) = self.ended.try_recv() {
            self.streams.insert(key, false);
            failures.extend(done.err());
        }
        failures
    }

    fn open(&mut self, pod: &Object, key: StreamKey) {
        let prefix = self.prefixes.format(pod, &key.1);
        let writer = LineWriter::new(prefix, self.style.clone());
        let (place, options, report) = (self.place.clone(), self.options.clone(), self.report.clone());
        let (pod, at) = (pod.clone(), key.clone());
        let copy = move || {
            let done = copy_log(&place, &pod, &at.1, &options, writer);
            // The receiver is gone when the command ends.
            drop(report.send((at, done)));
        };
        let started = std::thread::Builder::new().name("log".into()).spawn(copy);
        // Without a thread, the stream is tried again with the next call.
        if started.is_ok() {
            self.streams.insert(key, true);
        }
    }
}

/// Prefixes of lines: a colour for each pod, and names of one width.
pub struct Prefixes {
    form: PrefixForm,
    /// Number of each pod, by uid.
    numbers: HashMap<String, usize>,
    /// Width of the column of names.
    width: usize,
}

impl Prefixes {
    /// Creates the prefixes of a form.
    pub fn new(form: PrefixForm) -> Prefixes {
        Prefixes { form, numbers: HashMap::new(), width: 0 }
    }

    /// Returns the prefix of a container's lines.
    pub fn format(&mut self, pod: &Object, container: &str) -> Option<String> {
        let plain = match self.form {
            PrefixForm::None => return None,
            PrefixForm::Kubectl => format!("[pod/{}/{container}] ", pod.name()),
            PrefixForm::Column => {
                let is_single = PodContainers::from_pod(pod).main.len() == 1;
                let name = if is_single { pod.name().to_owned() } else { format!("{} {container}", pod.name()) };
                self.width = self.width.max(name.len());
                format!("{name:width$} | ", width = self.width)
            }
        };
        let next = self.numbers.len();
        let number = *self.numbers.entry(pod.uid().to_owned()).or_insert(next);
        Some(plain.color(colour(number)).to_string())
    }
}

/// Whether a container has been started at least once.
fn has_begun(pod: &Object, container: &str) -> bool {
    pod.container_status(container).is_some_and(|status| {
        let state = &status["state"];
        state["running"].is_object() || state["terminated"].is_object() || status["lastState"]["terminated"].is_object()
    })
}

/// The place of a cluster's logs; can be sent to another thread.
#[derive(Clone)]
pub enum LogPlace {
    /// Files of this machine.
    Files(LogSource),
    /// A server.
    Server(ApiClient),
}

impl LogPlace {
    /// Returns the location of the logs of the command's cluster.
    pub fn from_context(context: &mut CommandContext) -> CliResult<LogPlace> {
        match context.client() {
            Some(client) => Ok(LogPlace::Server(client.clone())),
            None => Ok(LogPlace::Files(LogSource::from_api(context.api()?))),
        }
    }
}

/// Returns the path of the request for a log.
fn log_path(pod: &Object, container: &str, options: &LogOptions) -> String {
    let path = object_path(&kinds::pod::KIND, "v1", (pod.namespace(), pod.name()), "log");
    let mut request = ClientRequest::get(path).query("container", container);
    let switches = [("follow", options.follow), ("previous", options.previous), ("timestamps", options.timestamps)];
    for (name, _) in switches.into_iter().filter(|(_, is_set)| *is_set) {
        request = request.query(name, "true");
    }
    let numbers = [("tailLines", options.tail.map(|lines| lines as u64)), ("limitBytes", options.limit_bytes)];
    for (name, number) in numbers {
        if let Some(number) = number {
            request = request.query(name, &number.to_string());
        }
    }
    match options.since {
        Some(since) => request.query("sinceTime", &time::rfc3339(since)).path,
        None => request.path,
    }
}

/// Copies a log to standard output until it ends.
pub fn copy_log(
    place: &LogPlace,
    pod: &Object,
    container: &str,
    options: &LogOptions,
    mut writer: LineWriter,
) -> CliResult {
    match place {
        LogPlace::Files(source) => {
            for piece in log::open(source, pod, container, options)?.into_iter().flatten() {
                writer.write(&piece?).map_err(Failure::writing)?;
            }
        }
        LogPlace::Server(client) => {
            let problem = |error| Failure::from(refusal(client, error));
            for piece in client.open_body(&log_path(pod, container, options)).map_err(problem)? {
                writer.write(&piece.map_err(problem)?).map_err(Failure::writing)?;
            }
        }
    }
    writer.finish().map_err(Failure::writing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn container_has_begun_once_it_runs_or_has_ended() {
        for (state, last, expected) in [
            (json!({"running": {}}), json!({}), true),
            (json!({"terminated": {}}), json!({}), true),
            (json!({"waiting": {}}), json!({"terminated": {}}), true),
            (json!({"waiting": {}}), json!({}), false),
        ] {
            let status = json!({"name": "main", "state": state, "lastState": last});
            let pod = Object(json!({"status": {"containerStatuses": [status]}}));
            assert_eq!(has_begun(&pod, "main"), expected, "{pod:?}");
            assert!(!has_begun(&pod, "other"));
        }
    }
}
