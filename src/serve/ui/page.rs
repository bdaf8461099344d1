//! The page and its headers: nothing but its own script and style runs, and it connects to its own server only.

use crate::serve::HttpAnswer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};

/// The page: markup, style and script in one file.
const PAGE: &str = include_str!("page.html");

/// Returns the text between two tags of the page.
fn find_between(start: &str, end: &str) -> &'static str {
    let text = PAGE.split_once(start).map_or("", |(_, rest)| rest);
    text.split_once(end).map_or("", |(text, _)| text)
}

fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

/// The policy of its contents: the script and the style are known by their hashes.
fn policy() -> String {
    let (script, style) = (hash(find_between("<script>", "</script>")), hash(find_between("<style>", "</style>")));
    format!(
        "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    )
}

/// Answers with the page.
pub fn answer() -> HttpAnswer {
    let answer = HttpAnswer { content_type: "text/html; charset=utf-8".into(), ..HttpAnswer::text(PAGE) };
    let headers = [
        ("Content-Security-Policy", policy()),
        ("Cross-Origin-Opener-Policy", "same-origin".to_owned()),
        ("Referrer-Policy", "no-referrer".to_owned()),
        ("X-Content-Type-Options", "nosniff".to_owned()),
        ("X-Frame-Options", "DENY".to_owned()),
    ];
    headers.into_iter().fold(answer, |answer, (name, value)| answer.with_header(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_small_and_names_no_other_host() {
        assert!(PAGE.len() < 100_000);
        for (start, end) in [("<script>", "</script>"), ("<style>", "</style>")] {
            assert_eq!((PAGE.matches(start).count(), PAGE.matches(end).count()), (1, 1), "{start}");
            assert!(find_between(start, end).len() > 1000);
        }
        let hosts = PAGE.matches("://").count();
        let namespaces = PAGE.matches("http://www.w3.org/2000/svg").count();
        assert_eq!((hosts, namespaces), (1, 1), "only the name of SVG looks like an address");
        // Texts of users would become markup.
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style=", " onclick="]
        {
            assert!(!PAGE.contains(word), "{word}");
        }
    }

    #[test]
    fn policy_allows_nothing_else() {
        let policy = policy();
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    }
}
