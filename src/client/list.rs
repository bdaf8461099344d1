//! Lists, read in pages.
//!
//! Knows: a page whose continuation has expired is followed by one whole list (client-go: pager). Never: keeps more than a bounded number
//! of bytes of one page. Start reading at [`list`].

use super::connection::ServerConnections;
use super::error::{ClientError, ClientResult};
use super::request::{self, ClientRequest};
use serde_json::Value;
use std::time::Duration;

/// Time limit of a page.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of objects of a list.
const MAX_OBJECTS: usize = 2_000_000;

/// Maximum number of pages that follow each other without an object.
const MAX_EMPTY_PAGES: usize = 100;

/// The objects of a list at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListedObjects {
    /// The objects. Those of a typed list have no kind and version of their own.
    pub items: Vec<Value>,
    /// The kind of the list, such as `PodList`.
    pub kind: String,
    /// The version of the list and its objects.
    pub api_version: String,
    /// The revision of the list, at which a watch can start.
    pub resource_version: String,
}

/// Reads all pages of a list.
pub async fn list(connections: &ServerConnections, path: &str) -> ClientResult<ListedObjects> {
    let mut listed = ListedObjects::default();
    let mut next: Option<String> = None;
    let mut empty = 0;
    loop {
        let mut page = ClientRequest::get(path).within(TIMEOUT);
        let size = connections.page();
        if size > 0 {
            page = page.query("limit", &size.to_string());
        }
        if let Some(token) = &next {
            page = page.query("continue", token);
        }
        page.path = with_sorted_parameters(&page.path);
        let body = match request::send(connections, page).await {
            // The server no longer has that revision: lists everything in one request, so that all objects have one revision.
            Err(error) if error.code() == 410 && next.is_some() => {
                let whole = request::send(connections, ClientRequest::get(path).within(TIMEOUT)).await?.json()?;
                listed = ListedObjects::default();
                listed.add_page(connections, whole)?;
                return Ok(listed);
            }
            read => read?.json()?,
        };
        next = body["metadata"]["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned);
        let before = listed.items.len();
        listed.add_page(connections, body)?;
        if next.is_none() {
            return Ok(listed);
        }
        empty = if listed.items.len() == before { empty + 1 } else { 0 };
        if empty > MAX_EMPTY_PAGES {
            let why = format!("the list continues after {MAX_EMPTY_PAGES} pages without an object");
            return Err(ClientError::Malformed { server: connections.authority(), why });
        }
    }
}

/// Returns a path with its parameters in the order of their names, as Go writes them.
fn with_sorted_parameters(path: &str) -> String {
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    let mut parameters: Vec<&str> = query.split('&').collect();
    parameters.sort_by_key(|parameter| parameter.split('=').next());
    format!("{path}?{}", parameters.join("&"))
}

impl ListedObjects {
    fn add_page(&mut self, connections: &ServerConnections, mut page: Value) -> ClientResult<()> {
        let malformed = |why: String| ClientError::Malformed { server: connections.authority(), why };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if !text(&page["kind"]).ends_with("List") {
            return Err(malformed(format!("it has kind {}, not that of a list", page["kind"])));
        }
        (self.kind, self.api_version) = (text(&page["kind"]), text(&page["apiVersion"]));
        self.resource_version = text(&page["metadata"]["resourceVersion"]);
        match page["items"].take() {
            Value::Array(items) => self.items.extend(items),
            Value::Null => {}
            _ => return Err(malformed("its items are not a list".to_owned())),
        }
        match self.items.len() {
            ..=MAX_OBJECTS => Ok(()),
            _ => Err(malformed(format!("the list has more than {MAX_OBJECTS} objects"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_pages_are_sorted() {
        assert_eq!(
            with_sorted_parameters("/a?limit=5&labelSelector=b&continue=c"),
            "/a?continue=c&labelSelector=b&limit=5"
        );
        assert_eq!(with_sorted_parameters("/a"), "/a");
    }
}
