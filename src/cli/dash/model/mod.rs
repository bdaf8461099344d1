//! The dashboard's state: its rows, the selected one, and the screen that is shown. Pure: keys in, actions out.
//!
//! Knows: which rows are open, found and visible, and the command of each key.
//! Never: draws, runs a command, or reads the store, the machine or a clock. Start reading at [`DashModel::handle_key`].

mod actions;
mod input;
mod mouse;
mod prompt;
pub mod text_pane;
pub mod window;

pub use actions::DashAction;
pub use prompt::DashPrompt;

use crate::diagnosis::overview::{ContainerLine, EventLine, Overview, OverviewNode, containers, events};
use crate::diagnosis::progress::Stage;
use crate::object::{Key, Time};
use crate::world::World;
use std::collections::HashMap;
use text_pane::TextPane;
use window::{Areas, ListWindow};

/// A workload with at most this many rows below it is open from the beginning.
const OPEN_UP_TO: usize = 10;

/// Most events of the whole cluster that are shown.
const MAX_EVENTS: usize = 500;

/// Most events of the selected object that are shown.
const MAX_OWN_EVENTS: usize = 20;

/// A screen of the dashboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DashScreen {
    /// Workloads and other objects.
    #[default]
    Objects,
    /// Events, newest first.
    Events,
    /// Loops and their queues.
    Loops,
}

/// Facts that the adapter brings.
#[derive(Clone, Debug, Default)]
pub struct DashFacts {
    /// Name of the cluster.
    pub cluster: String,
    /// The control plane.
    pub control_plane: ControlPlaneFact,
    /// Loops of the control plane, with the number of keys that wait for each.
    pub loops: Vec<LoopLine>,
    /// Ticks, the rows that they wrote, and the seconds that they took.
    pub ticks: Option<(u64, u64, f64)>,
    /// Process IDs of visible containers, by pod and container.
    pub processes: HashMap<RowId, i32>,
}

/// The fact about the control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ControlPlaneFact {
    /// None runs on this machine.
    #[default]
    Stopped,
    /// The process with this ID leads.
    Leads(u32),
    /// The process runs behind an API server, which returns no facts about it.
    AtServer,
}

/// A loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopLine {
    /// Its name.
    pub name: String,
    /// Number of waiting keys.
    pub depth: usize,
}

/// Identity of a row: an object, or a container of a pod.
pub type RowId = (Key, Option<String>);

/// A row as it is shown.
#[derive(Clone, Debug)]
pub struct TreeRow {
    /// Its place in the overview.
    pub node: usize,
    /// The container, for rows of containers.
    pub container: Option<ContainerLine>,
    /// Its depth below the rows without owners.
    pub depth: usize,
    /// Whether it is open; `None` when nothing is below it.
    pub is_open: Option<bool>,
}

/// Result of the last change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DashNotice {
    /// One line of text.
    pub text: String,
    /// Whether the change failed.
    pub is_error: bool,
}

/// The dashboard.
pub struct DashModel {
    /// The cluster.
    pub world: World,
    /// Facts about this machine.
    pub facts: DashFacts,
    /// The namespace that is shown; `None` for all.
    pub namespace: Option<String>,
    /// The screen that is shown.
    pub screen: DashScreen,
    /// The text over it.
    pub pane: Option<TextPane>,
    /// The line that the user types.
    pub prompt: Option<DashPrompt>,
    /// Whether the keys are explained.
    pub shows_help: bool,
    /// Result of the last change.
    pub notice: Option<DashNotice>,
    /// The text that rows must contain.
    pub search: String,
    /// Whether only rows are shown that are not right.
    pub only_problems: bool,
    /// The visible part of the objects.
    pub list: ListWindow,
    /// The visible part of events or loops.
    pub side: ListWindow,
    overview: Overview,
    folds: HashMap<RowId, bool>,
    rows: Vec<TreeRow>,
    selected: Option<RowId>,
    events: Vec<EventLine>,
    own_events: (Option<(Key, u64)>, Vec<EventLine>),
    areas: Areas,
}

impl DashModel {
    /// Creates the dashboard of a World.
    pub fn new(world: World, namespace: Option<String>) -> DashModel {
        let mut model = DashModel {
            world,
            facts: DashFacts::default(),
            namespace,
            screen: DashScreen::default(),
            pane: None,
            prompt: None,
            shows_help: false,
            notice: None,
            search: String::new(),
            only_problems: false,
            list: ListWindow::default(),
            side: ListWindow::default(),
            overview: Overview::default(),
            folds: HashMap::new(),
            rows: Vec::new(),
            selected: None,
            events: Vec::new(),
            own_events: (None, Vec::new()),
            areas: Areas::default(),
        };
        model.refresh();
        model
    }

    /// Takes in changes of the World.
    pub fn refresh(&mut self) {
        self.overview.update(&self.world, self.namespace.as_deref());
        self.folds.retain(|(key, _), _| self.world.get(key).is_some());
        if self.screen == DashScreen::Events {
            self.read_events();
        }
        self.lay_out();
    }

    /// Sets the size of the screen.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.areas = Areas::for_size(columns, rows);
        let body = usize::from(self.areas.body.height);
        (self.list.height, self.side.height) = (body, body);
        if let Some(pane) = &mut self.pane {
            pane.height = usize::from(self.areas.pane.height);
        }
        self.lay_out();
    }

    /// The parts of the screen.
    pub fn areas(&self) -> &Areas {
        &self.areas
    }

    /// The rows of objects.
    pub fn rows(&self) -> &[TreeRow] {
        &self.rows
    }

    /// The object of a row.
    pub fn node(&self, row: &TreeRow) -> &OverviewNode {
        &self.overview.nodes[row.node]
    }

    /// The identity of a row.
    pub fn id_of(&self, row: &TreeRow) -> RowId {
        (self.node(row).key.clone(), row.container.as_ref().map(|container| container.name.clone()))
    }

    /// The selected row.
    pub fn selected_row(&self) -> Option<&TreeRow> {
        self.rows.get(self.list.selected)
    }

    /// The number of ready pods and of all, and of rows without owners that are not right.
    pub fn counts(&self) -> (usize, usize, usize) {
        self.overview.counts()
    }

    /// Time of the World.
    pub fn now(&self) -> Time {
        self.world.now
    }

    /// The events that match the search.
    pub fn events(&self) -> Vec<&EventLine> {
        let found = |event: &&EventLine| {
            let texts = [&event.about, &event.reason, &event.message];
            self.search.is_empty() || texts.iter().any(|text| contains(text, &self.search))
        };
        self.events.iter().filter(found).collect()
    }

    /// Events of the selected object, newest first.
    pub fn own_events(&self) -> &[EventLine] {
        &self.own_events.1
    }

    /// The missing state of the selected object, as a sentence.
    pub fn trouble(&self) -> Option<String> {
        let key = &self.node(self.selected_row()?).key;
        crate::diagnosis::overview::trouble(&self.world, key)
    }

    /// Notes the result of a change.
    pub fn notify(&mut self, text: String, is_error: bool) {
        self.notice = Some(DashNotice { text, is_error });
    }

    fn read_events(&mut self) {
        self.events = events(&self.world, self.namespace.as_deref(), None, MAX_EVENTS);
        self.side.set_count(self.events().len());
    }

    /// Rebuilds the rows. The selected object stays selected.
    fn lay_out(&mut self) {
        let mut rows = Vec::new();
        for place in &self.overview.roots {
            self.flatten(*place, 0, false, &mut rows);
        }
        self.rows = rows;
        self.list.set_count(self.rows.len());
        let selected = self.selected.as_ref();
        let place = selected.and_then(|id| self.rows.iter().position(|row| self.is_row(row, id)));
        self.list.select(place.unwrap_or(self.list.selected));
        self.note_selected();
    }

    fn is_row(&self, row: &TreeRow, (key, container): &RowId) -> bool {
        self.node(row).key == *key && row.container.as_ref().map(|own| &own.name) == container.as_ref()
    }

    /// Notes the selected row, and reads its events.
    fn note_selected(&mut self) {
        self.selected = self.selected_row().map(|row| self.id_of(row));
        let wanted = self.selected.as_ref().map(|(key, _)| (key.clone(), self.world.revision));
        if self.own_events.0 != wanted {
            let key = wanted.as_ref().map(|(key, _)| key);
            let found = key.map(|key| events(&self.world, None, Some(key), MAX_OWN_EVENTS)).unwrap_or_default();
            self.own_events = (wanted, found);
        }
    }

    /// Adds a row and the open ones below it; true when any was added.
    fn flatten(&self, place: usize, depth: usize, is_found: bool, rows: &mut Vec<TreeRow>) -> bool {
        let node = &self.overview.nodes[place];
        if self.only_problems && is_right(node) {
            return false;
        }
        let is_pod = node.key.resource == "pods";
        let is_found = is_found || self.matches(node);
        let is_searching = !self.search.is_empty();
        let usual = !is_pod && node.children.len() <= OPEN_UP_TO;
        let id = (node.key.clone(), None);
        let is_open = self.folds.get(&id).copied().unwrap_or(usual || (is_searching && !is_found));
        let has_more = is_pod || !node.children.is_empty();
        let at = rows.len();
        rows.push(TreeRow { node: place, container: None, depth, is_open: has_more.then_some(is_open) });
        let mut has_found = is_found;
        if is_open {
            for child in &node.children {
                has_found |= self.flatten(*child, depth + 1, is_found, rows);
            }
        }
        if is_searching && !has_found {
            rows.truncate(at);
            return false;
        }
        if is_open && is_pod {
            let pod = self.world.get(&node.key).map(|row| containers(&row.body())).unwrap_or_default();
            let container = |line| TreeRow { node: place, container: Some(line), depth: depth + 1, is_open: None };
            rows.extend(pod.into_iter().map(container));
        }
        true
    }

    fn matches(&self, node: &OverviewNode) -> bool {
        let name = || format!("{}/{}", node.kind, node.key.name);
        self.search.is_empty()
            || contains(&name(), &self.search)
            || contains(&node.status, &self.search)
            || contains(&node.key.namespace, &self.search)
    }
}

/// Whether nothing is wrong with a row.
fn is_right(node: &OverviewNode) -> bool {
    node.stage.is_settled() || node.stage == Stage::Done
}

/// Whether a text contains another one, ignoring case.
fn contains(text: &str, part: &str) -> bool {
    text.to_lowercase().contains(&part.to_lowercase())
}
