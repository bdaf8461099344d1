//! Links of pages behind a proxy, which lead through it (k8s.io/apimachinery/pkg/util/proxy, Transport).
//!
//! Knows: the attributes of HTML that are links. Never: reads from a connection. Start reading at [`ProxiedSite`].

use html5gum::emitters::default::DefaultEmitter;
use html5gum::{StartTag, Token, Tokenizer};

/// Elements of HTML and their attributes that are links.
const LINKS: [(&str, &[&str]); 25] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["formaction", "src", "usemap"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// A site that clients reach through this server.
#[derive(Clone, Debug)]
pub struct ProxiedSite {
    /// The path of this server under which the site's root is reached, without the last slash.
    pub prefix: String,
    /// Host and port of the site.
    pub place: String,
    /// Host and port at which the client reaches this server; empty when it does not say.
    pub server: String,
}

impl ProxiedSite {
    /// Rewrites a link to a path of the proxy; `None` for a link that stays unchanged: a rewritten or relative one, or one to another
    /// server.
    pub fn redirect(&self, link: &str) -> Option<String> {
        let (host, path) = split_host(link)?;
        let start = match host {
            Some(host) if host == self.server => &link[..link.len() - path.len()],
            Some(host) if host != self.place => return None,
            _ => "",
        };
        let prefix = if path.starts_with(&self.prefix) { "" } else { &self.prefix };
        let redirected = format!("{start}{prefix}{path}");
        (redirected != link).then_some(redirected)
    }

    /// Leads the links of a page through the proxy. Everything else of the page stays as it is.
    pub fn redirect_page(&self, html: &[u8]) -> Vec<u8> {
        let mut emitter = DefaultEmitter::<usize>::new_with_span();
        emitter.naively_switch_states(true);
        let (mut page, mut copied) = (Vec::with_capacity(html.len()), 0);
        for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
            let Token::StartTag(mut tag) = token else { continue };
            let (start, end) = (tag.span.start, tag.span.end);
            let is_whole = html.get(start..end).is_some_and(|text| text.starts_with(b"<") && text.ends_with(b">"));
            if is_whole && start >= copied && self.redirect_tag(&mut tag) {
                page.extend_from_slice(&html[copied..start]);
                write_tag(&tag, &mut page);
                copied = end;
            }
        }
        page.extend_from_slice(&html[copied..]);
        page
    }

    /// Returns whether the tag had a link that is redirected.
    fn redirect_tag(&self, tag: &mut StartTag<usize>) -> bool {
        let known = LINKS.iter().find(|(name, _)| name.as_bytes() == &**tag.name);
        let mut is_changed = false;
        for name in known.into_iter().flat_map(|(_, names)| *names) {
            let Some(value) = tag.attributes.get_mut(name.as_bytes()) else { continue };
            let redirected = std::str::from_utf8(&value.value).ok().and_then(|link| self.redirect(link));
            if let Some(redirected) = redirected {
                value.value = redirected.into_bytes().into();
                is_changed = true;
            }
        }
        is_changed
    }
}

/// Splits an absolute link into its host, if it has one, and the rest, which begins with a slash.
fn split_host(link: &str) -> Option<(Option<&str>, &str)> {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let after_host = match link.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => Some(rest),
        _ => link.strip_prefix("//"),
    };
    let Some(rest) = after_host else { return link.starts_with('/').then_some((None, link)) };
    let (host, path) = rest.split_at(rest.find('/')?);
    Some((Some(host), path))
}

fn write_tag(tag: &StartTag<usize>, page: &mut Vec<u8>) {
    page.push(b'<');
    page.extend_from_slice(&tag.name);
    for (name, value) in &tag.attributes {
        page.push(b' ');
        page.extend_from_slice(name);
        page.extend_from_slice(b"=\"");
        for byte in &**value.value {
            match byte {
                b'&' => page.extend_from_slice(b"&amp;"),
                b'"' => page.extend_from_slice(b"&#34;"),
                byte => page.push(*byte),
            }
        }
        page.push(b'"');
    }
    page.extend_from_slice(if tag.self_closing { b"/>" } else { b">" });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> ProxiedSite {
        let text = |text: &str| text.to_owned();
        ProxiedSite { prefix: text("/pods/web/proxy"), place: text("127.9.1.2:80"), server: text("localhost:8001") }
    }

    #[test]
    fn absolute_links_to_the_site_lead_through_the_proxy() {
        for (link, expected) in [
            ("/", Some("/pods/web/proxy/")),
            ("/page?a=/b#c", Some("/pods/web/proxy/page?a=/b#c")),
            ("http://127.9.1.2:80/page", Some("/pods/web/proxy/page")),
            ("//127.9.1.2:80/page", Some("/pods/web/proxy/page")),
            ("http://127.9.1.2:80/pods/web/proxy/page", Some("/pods/web/proxy/page")),
            ("https://localhost:8001/page", Some("https://localhost:8001/pods/web/proxy/page")),
            ("https://localhost:8001/pods/web/proxy/page", None),
            ("/pods/web/proxy/page", None),
            ("page", None),
            ("../page", None),
            ("?a=http://b/c", None),
            ("#top", None),
            ("", None),
            ("mailto:a@b.example", None),
            ("http://other.example/page", None),
            ("http://127.9.1.2:80", None),
        ] {
            assert_eq!(site().redirect(link).as_deref(), expected, "{link}");
        }
    }

    #[test]
    fn links_of_a_page_are_changed_alone() {
        let page = |html: &str| String::from_utf8(site().redirect_page(html.as_bytes())).unwrap();
        for (html, expected) in [
            ("<a href=\"/x\">test</a>", "<a href=\"/pods/web/proxy/x\">test</a>"),
            ("<A HREF=/x CLASS='a \"b\"'>\r\n", "<a class=\"a &#34;b&#34;\" href=\"/pods/web/proxy/x\">\r\n"),
            ("<img src='/a?b&amp;c'/>", "<img src=\"/pods/web/proxy/a?b&amp;c\"/>"),
            (
                "<!DOCTYPE html>\r\n<p>1 &lt; 2<form action=/f><b href=\"/b\">",
                "<!DOCTYPE html>\r\n<p>1 &lt; 2<form action=\"/pods/web/proxy/f\"><b href=\"/b\">",
            ),
        ] {
            assert_eq!(page(html), expected);
        }
        for same in [
            "<a href=\"x\">",
            "<script>if (a < b) { document.write('<a href=\"/x\">') }</script>",
            "<!-- <a href=\"/x\"> -->",
            "<a href=\"/x\"",
            "",
        ] {
            assert_eq!(page(same), same);
        }
        let broken = [b"\xff<a href=\"/\xfe\"><a href=\"/x\">".as_slice(), b"\xff"].concat();
        let changed = site().redirect_page(&broken);
        assert_eq!(changed, [b"\xff<a href=\"/\xfe\"><a href=\"/pods/web/proxy/x\">".as_slice(), b"\xff"].concat());
    }
}
