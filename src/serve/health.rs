//! Health of the server, check by check: `/healthz`, `/livez`, `/readyz`, and as metrics `/metrics/slis`.
//!
//! Knows: the checks and their text. Never: writes. Start reading at [`answer()`].

use super::metrics::MetricsText;
use super::request::ApiRequest;
use super::{HttpAnswer, ServeResult, not_allowed, unknown_path};
use crate::apiserver::{Api, custom};
use crate::object::Status;
use std::fmt::Write;

/// One health check.
struct HealthCheck {
    name: &'static str,
    run: fn(&Api) -> Result<(), Status>,
}

const CHECKS: [HealthCheck; 3] = [
    HealthCheck { name: "ping", run: |_| Ok(()) },
    HealthCheck { name: "store", run: |api| api.read(|snapshot| snapshot.revision()).map(drop) },
    HealthCheck {
        name: "custom-kinds",
        run: |api| api.read(|snapshot| custom::register_definitions(api.kinds(), snapshot)),
    },
];

/// Maximum number of excluded checks that the answer names.
const MAX_EXCLUDED: usize = 20;

/// Answers one endpoint, or one of its checks (`apiserver/pkg/server/healthz`).
pub fn answer(api: &Api, request: &ApiRequest, endpoint: &str, name: Option<&str>) -> ServeResult {
    if !request.is_get_or_head() {
        return Err(not_allowed());
    }
    if let Some(name) = name {
        let check = CHECKS.iter().find(|check| check.name == name).ok_or_else(unknown_path)?;
        return Ok(match (check.run)(api) {
            Ok(()) => plain(200, "ok".into()),
            Err(status) => plain(500, format!("internal server error: {status}\n")),
        });
    }
    let mut excluded: Vec<&str> =
        request.query.iter().filter(|(name, _)| name == "exclude").map(|(_, value)| value.as_str()).collect();
    let (mut text, mut fails) = (String::new(), false);
    for check in &CHECKS {
        let count = excluded.len();
        excluded.retain(|name| *name != check.name);
        let result = match excluded.len() == count {
            false => "excluded: ok",
            true if (check.run)(api).is_ok() => "ok",
            true => {
                fails = true;
                "failed: reason withheld"
            }
        };
        let sign = if result.starts_with("failed") { '-' } else { '+' };
        let _ = writeln!(text, "[{sign}]{} {result}", check.name);
    }
    if !excluded.is_empty() {
        excluded.truncate(MAX_EXCLUDED);
        let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        let _ = writeln!(text, "warn: some health checks cannot be excluded: no matches for {}", names.join(", "));
    }
    Ok(match fails {
        true => plain(500, format!("{text}{endpoint} check failed\n")),
        false if request.flag("verbose") => plain(200, format!("{text}{endpoint} check passed\n")),
        false => plain(200, "ok".into()),
    })
}

/// Measures the checks, for `/metrics/slis` (KEP-3466).
pub fn measure(api: &Api) -> MetricsText {
    let name = "kubernetes_healthcheck";
    let mut text = MetricsText::default();
    text.begin(name, "gauge", "1 for a health check that passes, else 0.");
    for check in &CHECKS {
        let passes = u8::from((check.run)(api).is_ok());
        for endpoint in ["healthz", "livez", "readyz"] {
            text.add(name, &[("name", check.name), ("type", endpoint)], passes);
        }
    }
    text
}

fn plain(code: u16, text: String) -> HttpAnswer {
    HttpAnswer { code, ..HttpAnswer::text(text) }.with_header("X-Content-Type-Options", "nosniff".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::AnswerBody;

    fn ask(target: &str) -> (u16, String) {
        let mut api = Api::in_memory("test").unwrap();
        let answer = crate::serve::answer(&mut api, &ApiRequest::new("GET", target));
        let AnswerBody::Whole(bytes) = answer.body else { panic!("{target}") };
        (answer.code, String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn checks_are_named_and_can_be_excluded() {
        assert_eq!(ask("/readyz"), (200, "ok".into()));
        let all = "[+]ping ok\n[+]store ok\n[+]custom-kinds ok\nlivez check passed\n";
        assert_eq!(ask("/livez?verbose"), (200, all.into()));
        let (_, text) = ask("/readyz?verbose&exclude=store&exclude=nothing");
        assert!(text.contains("[+]store excluded: ok\n"), "{text}");
        assert!(text.contains("cannot be excluded: no matches for \"nothing\"\n"), "{text}");
        assert_eq!(ask("/readyz/store"), (200, "ok".into()));
        assert_eq!(ask("/readyz/nothing").0, 404);
        let (_, measured) = ask("/metrics/slis");
        assert!(measured.contains("kubernetes_healthcheck{name=\"store\",type=\"readyz\"} 1\n"), "{measured}");
    }
}
