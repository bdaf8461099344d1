//! The result of `kloop up --wait` for programs: JSON, JUnit XML, and annotations of GitHub Actions.
//!
//! Never: prints or writes a file. Start reading at [`UpReport`].

use crate::diagnosis::progress::WorkloadProgress;
use crate::diagnosis::why::CauseChain;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// A workload or another object that was waited for.
pub struct ReportedObject {
    /// Its progress; `None` for objects without pods, such as Services.
    pub progress: Option<WorkloadProgress>,
    /// `deployment/web`.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Time from the start until the object was ready.
    pub ready_after: Option<Duration>,
    /// The missing state, as a sentence; `None` when it is ready.
    pub missing: Option<String>,
    /// The explanation of `kloop why`, without colours.
    pub explanation: String,
    /// File and line of its manifest.
    pub source: Option<(String, usize)>,
    /// Its addresses.
    pub urls: Vec<String>,
}

/// The result of a run.
pub struct UpReport {
    /// All objects that were waited for.
    pub objects: Vec<ReportedObject>,
    /// Time from the start to the end.
    pub elapsed: Duration,
}

impl UpReport {
    /// Whether everything is ready.
    pub fn is_ready(&self) -> bool {
        self.objects.iter().all(|object| object.missing.is_none())
    }

    /// Returns the report as JSON.
    pub fn to_json(&self) -> Value {
        let object = |object: &ReportedObject| {
            let progress = object.progress.as_ref();
            json!({
                "name": object.name,
                "namespace": object.namespace,
                "ready": object.missing.is_none(),
                "stage": progress.map(|progress| progress.stage.word()),
                "pods": progress.map(|progress| json!({
                    "ready": progress.ready, "wanted": progress.wanted, "restarts": progress.restarts,
                })),
                "seconds": object.ready_after.map(seconds),
                "missing": object.missing,
                "why": Some(&object.explanation).filter(|text| !text.is_empty()),
                "file": object.source.as_ref().map(|(file, _)| file),
                "line": object.source.as_ref().map(|(_, line)| line),
                "urls": object.urls,
            })
        };
        let objects: Vec<Value> = self.objects.iter().map(object).collect();
        json!({"ready": self.is_ready(), "seconds": seconds(self.elapsed), "objects": objects})
    }

    /// Returns the report as a JUnit test suite: a test case for each object.
    pub fn to_junit(&self) -> String {
        let failures = self.objects.iter().filter(|object| object.missing.is_some()).count();
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"kloop up\" tests=\"{}\" failures=\"{failures}\" time=\"{:.3}\">\n",
            self.objects.len(),
            self.elapsed.as_secs_f64()
        );
        for object in &self.objects {
            let time = object.ready_after.unwrap_or(self.elapsed).as_secs_f64();
            let (name, class) = (xml(&object.name), xml(&object.namespace));
            let open = format!("  <testcase classname=\"{class}\" name=\"{name}\" time=\"{time:.3}\"");
            // Writing to a String cannot fail.
            let _ = match &object.missing {
                None => writeln!(text, "{open}/>"),
                Some(missing) => writeln!(
                    text,
                    "{open}>\n    <failure message=\"{}\">{}</failure>\n  </testcase>",
                    xml(missing),
                    xml(&object.explanation)
                ),
            };
        }
        text + "</testsuite>\n"
    }

    /// Returns a workflow command of GitHub Actions for each object that is not ready.
    pub fn to_annotations(&self) -> String {
        let failed = self.objects.iter().filter_map(|object| Some((object, object.missing.as_ref()?)));
        let annotation = |(object, missing): (&ReportedObject, &String)| {
            let place = object.source.as_ref().map(|(file, line)| format!("file={},line={line},", property(file)));
            let details = if object.explanation.is_empty() { missing } else { &object.explanation };
            format!("::error {}title={}::{}\n", place.unwrap_or_default(), property(&object.name), message(details))
        };
        failed.map(annotation).collect()
    }
}

fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

/// Formats an explanation for programs: the chain from the owner to the cause, and the next step.
pub fn explain_plainly(chain: &CauseChain) -> String {
    let mut lines = Vec::new();
    for link in &chain.links {
        let error = link.error.as_ref().map(|error| format!("; {error}")).unwrap_or_default();
        lines.push(format!("{}: {}{error}", link.what, link.seen));
        lines.extend(link.more.iter().cloned());
    }
    lines.push(format!("next: {}", chain.next()));
    lines.join("\n")
}

/// Escapes text for XML. Characters that XML cannot contain are left out.
fn xml(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(letter),
            '\u{fffe}' | '\u{ffff}' => {}
            letter if letter.is_control() => {}
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Escapes the message of a workflow command.
fn message(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a property of a workflow command.
fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> UpReport {
        let object = |name: &str, missing: Option<&str>| ReportedObject {
            progress: None,
            name: name.to_owned(),
            namespace: "default".to_owned(),
            ready_after: missing.is_none().then(|| Duration::from_millis(250)),
            missing: missing.map(str::to_owned),
            explanation: missing
                .map(|_| "container app: exit 1 <&>\nnext: fix it, 100%".to_owned())
                .unwrap_or_default(),
            source: Some(("a,b.yaml".to_owned(), 7)),
            urls: Vec::new(),
        };
        let objects = vec![object("service/web", None), object("deployment/web", Some("readyReplicas is 0 of 1"))];
        UpReport { objects, elapsed: Duration::from_millis(1500) }
    }

    #[test]
    fn junit_has_a_case_for_each_object_and_the_explanation() {
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuite name=\"kloop up\" tests=\"2\" failures=\"1\" time=\"1.500\">
  <testcase classname=\"default\" name=\"service/web\" time=\"0.250\"/>
  <testcase classname=\"default\" name=\"deployment/web\" time=\"1.500\">
    <failure message=\"readyReplicas is 0 of 1\">container app: exit 1 &lt;&amp;&gt;
next: fix it, 100%</failure>
  </testcase>
</testsuite>
";
        assert_eq!(report().to_junit(), expected);
    }

    #[test]
    fn annotations_name_file_and_line_of_failures() {
        let expected =
            "::error file=a%2Cb.yaml,line=7,title=deployment/web::container app: exit 1 <&>%0Anext: fix it, 100%25\n";
        assert_eq!(report().to_annotations(), expected);
    }

    #[test]
    fn json_names_what_is_missing() {
        let value = report().to_json();
        assert_eq!((value["ready"].as_bool(), value["seconds"].as_f64()), (Some(false), Some(1.5)));
        assert_eq!(value["objects"][0]["seconds"], 0.25);
        assert_eq!(value["objects"][1]["missing"], "readyReplicas is 0 of 1");
    }
}
