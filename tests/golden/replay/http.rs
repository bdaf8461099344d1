//! Plain HTTP requests of a conversation, sent to kloop's own server.

use super::cluster::Cluster;
use crate::golden::Exchange;
use regex::Regex;
use serde_json::Value;
use std::sync::LazyLock;

static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(\d+[smhdy])+$").expect("pattern"));

/// The client, and the parts of earlier answers that later requests need.
pub struct Client {
    address: String,
    token: String,
    revision: Option<String>,
    token_of_list: Option<String>,
}

/// The response.
pub struct Answer {
    code: u16,
    headers: Vec<(String, String)>,
    /// As text.
    pub body: String,
}

/// Performs actions that the recording does not show.
pub fn prepare(scenario: &str, exchange: &Exchange, cluster: &Cluster) {
    if scenario != "raw-lists-watch" {
        return;
    }
    let lines = match exchange.path.as_str() {
        "/api/v1/namespaces/default/configmaps?labelSelector=set%3Dfive" => (1..=5)
            .map(|n| {
                format!("kubectl create configmap c{n} --from-literal=i={n} && kubectl label configmap c{n} set=five")
            })
            .collect(),
        path if path.contains("watch=1&resourceVersion={{rv}}&labelSelector=set%3Dfive") => {
            let lines = "label cm c1 new=1; delete cm c2; create cm c6; label cm c3 set=other --overwrite; label cm c6 set=five";
            lines.split("; ").map(|line| format!("kubectl {line}")).collect()
        }
        _ => Vec::new(),
    };
    for line in lines {
        assert_eq!(cluster.run(&line, "").code, 0, "{line}");
    }
}

impl Client {
    /// Starts a server in the cluster.
    pub fn start(cluster: &Cluster) -> Client {
        let (address, token) = cluster.serve();
        Client { address, token, revision: None, token_of_list: None }
    }

    /// Sends a request, as an administrator unless it says otherwise.
    pub fn ask(&mut self, exchange: &Exchange) -> Answer {
        let known = |known: &Option<String>| known.clone().unwrap_or_default();
        let path =
            exchange.path.replace("{{rv}}", &known(&self.revision)).replace("{{cont}}", &known(&self.token_of_list));
        let mut request = ureq::http::Request::builder()
            .method(exchange.method.as_str())
            .uri(format!("http://{}{path}", self.address))
            .header("User-Agent", "golden");
        if !exchange.headers.iter().any(|(name, _)| name == "Authorization") {
            request = request.header("Authorization", format!("Bearer {}", self.token));
        }
        for (name, value) in &exchange.headers {
            request = request.header(name, value);
        }
        let agent = ureq::Agent::config_builder().http_status_as_error(false).allow_non_standard_methods(true).build();
        let agent = ureq::Agent::new_with_config(agent);
        // The first mark of a body is a separate line.
        let body = exchange.body.strip_prefix('\n').map(|body| body.strip_suffix('\n').unwrap_or(body).to_owned());
        let answer = match body {
            Some(body) => agent.run(request.body(body).expect("a request")),
            None => agent.run(request.body(()).expect("a request")),
        };
        let mut answer = answer.expect("an answer");
        let headers = answer.headers().iter();
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned()));
        let headers = headers.collect();
        let body = answer.body_mut().read_to_string().expect("a body");
        self.remember(exchange, &body);
        Answer { code: answer.status().as_u16(), headers, body }
    }

    fn remember(&mut self, exchange: &Exchange, body: &str) {
        let metadata = serde_json::from_str::<Value>(body).map(|list| list["metadata"].clone()).unwrap_or_default();
        let text = |field: &str| metadata[field].as_str().map(str::to_owned);
        if exchange.method == "GET" && self.revision.is_none() {
            self.revision = text("resourceVersion");
        }
        if exchange.path.contains("limit=") && self.token_of_list.is_none() {
            self.token_of_list = text("continue");
        }
    }
}

impl Exchange {
    /// Returns the status line of the answer and its headers.
    pub fn head(&self) -> String {
        let code = self.status.split(' ').next().unwrap_or_default();
        let headers = self.answer_headers.iter().map(|(name, value)| format!("\n{name}: {value}"));
        format!("{code}{}", headers.collect::<String>())
    }
}

impl Answer {
    /// Returns the status line and those headers that were recorded.
    pub fn head(&self, recorded: &Exchange) -> String {
        let find = |name: &str| self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let headers =
            recorded.answer_headers.iter().filter_map(|(name, _)| Some(format!("\n{name}: {}", find(name)?.1)));
        format!("{}{}", self.code, headers.collect::<String>())
    }
}

/// Returns JSON with sorted keys, one document after the other, without fields that kloop does not have (`managedFields`, descriptions of
/// columns), with masked ages; other text unchanged. `only`: the compared part.
pub fn plain(text: &str, only: &str) -> String {
    let documents: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
    let Ok(documents) = documents else { return text.to_owned() };
    let mut plain = String::new();
    for mut document in documents {
        let annotations = &document["object"]["metadata"]["annotations"];
        if document["type"] == "BOOKMARK" && annotations["k8s.io/initial-events-end"].is_null() {
            continue;
        }
        let path = only.split('.').filter(|word| !word.is_empty());
        let path: String = path.map(|word| format!("/{word}")).collect();
        let mut part = document.pointer_mut(&path).map(Value::take).unwrap_or_default();
        strip(&mut part);
        plain.push_str(&format!("{part:#}\n"));
    }
    plain
}

fn strip(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match key.as_str() {
                    "columnDefinitions" => value.as_array_mut().into_iter().flatten().for_each(|column| {
                        column["description"] = "".into();
                    }),
                    "cells" => value.as_array_mut().into_iter().flatten().for_each(|cell| {
                        if cell.as_str().is_some_and(|text| AGE.is_match(text)) {
                            *cell = "<age>".into();
                        }
                    }),
                    "continue" => *value = "<continue>".into(),
                    _ => strip(value),
                }
            }
            map.remove("managedFields");
        }
        _ => {}
    }
}
