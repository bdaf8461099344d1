//! The dashboard as text: cases in `tests/cases/dash`, each with objects, the size of the screen, and keys.

use super::model::{ControlPlaneFact, DashAction, DashModel, LoopLine};
use super::view::{self, Palette};
use crate::test_cases::{self, words};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use serde_json::Value;

/// Returns the key of a word such as `enter`; other words are typed letter by letter.
fn keys(word: &str) -> Vec<KeyCode> {
    let code = match word {
        "enter" => KeyCode::Enter,
        "esc" => KeyCode::Esc,
        "down" => KeyCode::Down,
        "up" => KeyCode::Up,
        "left" => KeyCode::Left,
        "right" => KeyCode::Right,
        "end" => KeyCode::End,
        "pgdn" => KeyCode::PageDown,
        "tab" => KeyCode::Tab,
        "backspace" => KeyCode::Backspace,
        typed => return typed.chars().map(KeyCode::Char).collect(),
    };
    vec![code]
}

fn mouse(word: &str) -> Option<MouseEvent> {
    let (kind, rest) = word.split_once('@')?;
    let (column, row) = rest.split_once(',')?;
    let kind = match kind {
        "click" => MouseEventKind::Down(MouseButton::Left),
        "wheel" => MouseEventKind::ScrollDown,
        _ => return None,
    };
    let (column, row) = (column.parse().expect("a column"), row.parse().expect("a line"));
    Some(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
}

/// The text of the screen, and the commands that keys led to.
fn screen(input: &Value) -> String {
    let (columns, rows) = input["size"].as_str().expect("size:").split_once('x').expect("80x24");
    let (columns, rows) = (columns.parse().expect("columns"), rows.parse().expect("lines"));
    let mut model = DashModel::new(test_cases::world(input), input["namespace"].as_str().map(str::to_owned));
    model.facts.cluster = "/home/ann/state.db".to_owned();
    model.facts.control_plane = match (input["leader"].as_u64(), &input["server"]) {
        (Some(pid), _) => ControlPlaneFact::Leads(pid as u32),
        (None, Value::Bool(true)) => ControlPlaneFact::AtServer,
        (None, _) => ControlPlaneFact::Stopped,
    };
    let line =
        |word: &str| word.split_once(' ').map(|(name, depth)| (name.to_owned(), depth.parse().expect("a number")));
    let loops = words(input, "loops").filter_map(line);
    model.facts.loops = loops.map(|(name, depth)| LoopLine { name, depth }).collect();
    model.facts.ticks = (!model.facts.loops.is_empty()).then_some((7, 12, 0.25));
    model.resize(columns, rows);
    let mut actions = String::new();
    for word in words(input, "keys") {
        if let Some(mouse) = mouse(word) {
            model.handle_mouse(mouse);
            continue;
        }
        for code in keys(word) {
            match model.handle_key(KeyEvent::new(code, KeyModifiers::NONE)) {
                Some(DashAction::Show { title, arguments, .. }) => {
                    actions += &format!("shows {title:?}: {}\n", arguments.join(" "));
                }
                Some(DashAction::Change(arguments)) => actions += &format!("changes: {}\n", arguments.join(" ")),
                Some(DashAction::Interactive(arguments)) => actions += &format!("runs: {}\n", arguments.join(" ")),
                Some(DashAction::Quit) => actions += "quits\n",
                Some(DashAction::StopShowing) | None => {}
            }
        }
    }
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a screen");
    terminal.draw(|frame| view::draw(frame, &model, &Palette::new(false))).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let lines: Vec<String> = (0..rows).map(|y| format!("|{}", line(y).trim_end())).collect();
    format!("{}\n{actions}", lines.join("\n"))
}

#[test]
fn screens_of_the_cases() {
    test_cases::check("dash", screen);
}

#[test]
fn only_visible_rows_are_drawn_of_many() {
    let pod = |number: usize| {
        serde_json::json!({"kind": "Pod", "metadata": {"name": format!("p-{number:05}")},
            "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Pending"}})
    };
    let objects: Vec<Value> = (0..2000).map(pod).collect();
    let input = serde_json::json!({"objects": objects, "size": "80x24", "keys": ["end"]});
    let text = screen(&input);
    assert!(text.contains("pod/p-01999") && !text.contains("pod/p-00000"), "{text}");
    assert_eq!(text.lines().count(), 24, "{text}");
}
