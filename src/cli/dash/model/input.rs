//! Keys: each one moves, opens a prompt, or leads to a command.
//!
//! Start reading at [`DashModel::handle_key`].

use super::actions::DashAction;
use super::prompt::{DashPrompt, PromptPurpose};
use super::{DashModel, DashScreen};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Longest text that can be typed.
const MAX_TEXT_LENGTH: usize = 1000;

impl DashModel {
    /// Handles a key.
    pub fn handle_key(&mut self, key: KeyEvent) -> Option<DashAction> {
        self.notice = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(DashAction::Quit);
        }
        if self.prompt.is_some() {
            return self.handle_prompt_key(key.code);
        }
        if self.shows_help {
            self.shows_help = false;
            return None;
        }
        if self.pane.is_some() {
            return self.handle_pane_key(key.code);
        }
        if self.move_by_key(key.code) {
            return None;
        }
        self.handle_command_key(key.code)
    }

    /// Moves the selection; false when the key is for something else.
    fn move_by_key(&mut self, code: KeyCode) -> bool {
        let window = if self.screen == DashScreen::Objects { &mut self.list } else { &mut self.side };
        let page = window.height.max(1) as isize;
        match code {
            KeyCode::Up | KeyCode::Char('k') => window.step(-1),
            KeyCode::Down | KeyCode::Char('j') => window.step(1),
            KeyCode::PageUp => window.step(-page),
            KeyCode::PageDown => window.step(page),
            KeyCode::Home | KeyCode::Char('g') => window.select(0),
            KeyCode::End | KeyCode::Char('G') => window.select(usize::MAX),
            _ => return false,
        }
        self.note_selected();
        true
    }

    fn handle_command_key(&mut self, code: KeyCode) -> Option<DashAction> {
        match code {
            KeyCode::Char('q') => return Some(DashAction::Quit),
            KeyCode::Esc => self.leave(),
            KeyCode::Char('?') => self.shows_help = true,
            KeyCode::Char('e') => self.switch_to(DashScreen::Events),
            KeyCode::Char('L') => self.switch_to(DashScreen::Loops),
            KeyCode::Tab => self.switch_to(next_screen(self.screen)),
            KeyCode::Char('/') => self.ask("search: ", self.search.clone(), PromptPurpose::Search),
            KeyCode::Char('p') => self.ask("plan of file or folder: ", ".".to_owned(), PromptPurpose::Plan),
            KeyCode::Char('!') => {
                self.only_problems = !self.only_problems;
                self.lay_out();
            }
            _ if self.screen != DashScreen::Objects => {}
            KeyCode::Enter | KeyCode::Char(' ') => self.fold(None),
            KeyCode::Right => self.fold(Some(true)),
            KeyCode::Left => self.fold_or_go_up(),
            KeyCode::Char('d') => return self.show_verb("describe"),
            KeyCode::Char('y') => return self.show_verb("yaml"),
            KeyCode::Char('w') => return self.show_verb("why"),
            KeyCode::Char('l') => return self.show_logs(),
            KeyCode::Char('x') => return self.exec(),
            KeyCode::Char('r') => return self.restart(),
            KeyCode::Char('s') => self.ask_for_scale(),
            KeyCode::Char('D') => self.ask_for_delete(),
            _ => {}
        }
        None
    }

    /// Goes back: drops the search, then leaves events and loops.
    fn leave(&mut self) {
        if !self.search.is_empty() {
            self.set_search(String::new());
        } else {
            self.switch_to(DashScreen::Objects);
        }
    }

    fn switch_to(&mut self, screen: DashScreen) {
        self.screen = if self.screen == screen { DashScreen::Objects } else { screen };
        self.side.select(0);
        match self.screen {
            DashScreen::Events => self.read_events(),
            DashScreen::Loops => self.side.set_count(self.facts.loops.len()),
            DashScreen::Objects => {}
        }
    }

    fn ask(&mut self, label: &str, text: String, purpose: PromptPurpose) {
        self.prompt = Some(DashPrompt { label: label.to_owned(), text, purpose });
    }

    pub(super) fn set_search(&mut self, search: String) {
        self.search = search;
        self.lay_out();
        if self.screen == DashScreen::Events {
            self.read_events();
        }
    }

    /// Opens or closes the selected row; `None` for the other state.
    pub(super) fn fold(&mut self, to: Option<bool>) {
        let Some(row) = self.selected_row() else { return };
        let Some(is_open) = row.is_open else { return };
        let id = self.id_of(row);
        self.folds.insert(id, to.unwrap_or(!is_open));
        self.lay_out();
    }

    /// Closes the selected row; selects its owner when it is closed or has nothing below it.
    fn fold_or_go_up(&mut self) {
        let Some(row) = self.selected_row() else { return };
        if row.is_open == Some(true) {
            return self.fold(Some(false));
        }
        let depth = row.depth;
        if let Some(owner) = self.rows[..self.list.selected].iter().rposition(|row| row.depth < depth) {
            self.list.select(owner);
            self.note_selected();
        }
    }

    fn handle_prompt_key(&mut self, code: KeyCode) -> Option<DashAction> {
        let prompt = self.prompt.as_mut()?;
        match code {
            KeyCode::Enter => {
                let prompt = self.prompt.take()?;
                return self.answer(prompt);
            }
            KeyCode::Esc => {
                let was_search = prompt.purpose == PromptPurpose::Search;
                self.prompt = None;
                if was_search && self.pane.is_none() {
                    self.set_search(String::new());
                }
                return None;
            }
            KeyCode::Backspace => drop(prompt.text.pop()),
            KeyCode::Char(letter) if prompt.text.len() < MAX_TEXT_LENGTH => prompt.text.push(letter),
            _ => return None,
        }
        if prompt.purpose == PromptPurpose::Search {
            let text = prompt.text.clone();
            match &mut self.pane {
                Some(pane) => {
                    pane.search = text;
                    pane.find(true);
                }
                None => self.set_search(text),
            }
        }
        None
    }

    fn handle_pane_key(&mut self, code: KeyCode) -> Option<DashAction> {
        let pane = self.pane.as_mut()?;
        let page = pane.height.max(1) as isize;
        match code {
            KeyCode::Esc | KeyCode::Char('q') => {
                self.pane = None;
                return Some(DashAction::StopShowing);
            }
            KeyCode::Up | KeyCode::Char('k') => pane.scroll(-1),
            KeyCode::Down | KeyCode::Char('j') | KeyCode::Enter => pane.scroll(1),
            KeyCode::PageUp | KeyCode::Char('b') => pane.scroll(-page),
            KeyCode::PageDown | KeyCode::Char(' ') => pane.scroll(page),
            KeyCode::Home | KeyCode::Char('g') => pane.scroll(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => pane.scroll(isize::MAX),
            KeyCode::Left => pane.scroll_sideways(false),
            KeyCode::Right => pane.scroll_sideways(true),
            KeyCode::Char('n') => drop(pane.find(true)),
            KeyCode::Char('N') => drop(pane.find(false)),
            KeyCode::Char('/') => self.ask("search: ", String::new(), PromptPurpose::Search),
            KeyCode::Char('?') => self.shows_help = true,
            _ => {}
        }
        None
    }
}

fn next_screen(screen: DashScreen) -> DashScreen {
    match screen {
        DashScreen::Objects => DashScreen::Events,
        DashScreen::Events => DashScreen::Loops,
        DashScreen::Loops => DashScreen::Objects,
    }
}
