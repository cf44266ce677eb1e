//! Draws the screen.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row as TableRow, Table, Wrap};
use redlock_sync::__private::printable;
use redlock_sync::Snapshot;

use super::rows::{ORDERS, Row, holder, rows};
use super::{Mode, Screen};
use crate::queue::row;
use crate::text::{cut, escaped, length};
use crate::watch::Latest;

/// The width of the bar of a lease, in cells.
const BAR: usize = 8;
/// The largest number of queues that the view shows.
const MOST_QUEUES: usize = 8;
/// The longest text that is shown, in characters. A longer one would be unreadable.
const LONGEST: usize = 300;
/// The number of characters of a name that a question shows. A character can be two columns wide.
const BRIEF: usize = 60;

pub(super) fn draw(frame: &mut Frame<'_>, screen: &mut Screen, latest: &Latest) {
    // One line more says how many queues are not shown.
    let queues = latest.seen.as_ref().map_or(0, |seen| seen.queues.len().min(MOST_QUEUES + 1));
    let queues = u16::try_from(if queues == 0 { 0 } else { queues + 1 }).unwrap_or(0);
    let parts = [Constraint::Length(2), Constraint::Min(3), Constraint::Length(queues), Constraint::Length(1)];
    let [above, table, below, last] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Paragraph::new(heading(latest, screen.style(Color::Red))), above);
    locks(frame, screen, table);
    if let Some(seen) = latest.seen.as_ref().filter(|_| queues > 0) {
        frame.render_widget(queue_table(seen), below);
    }
    frame.render_widget(Paragraph::new(footer(screen)), last);
    match &screen.mode {
        Mode::Details => {
            let name = screen.name.as_deref().unwrap_or_default();
            // The lock is shown even if it does not match the filter any more.
            let all = latest.seen.iter().flat_map(|seen| rows(seen, latest.age(), name));
            let row = all.into_iter().find(|row| row.name == name);
            // Each holder takes three lines, and the rest of the window ten.
            let fit = usize::from(frame.area().height.saturating_sub(10) / 3).max(1);
            let gone = || "It is not held any more.\n\nEsc: back".to_owned();
            let text = row.as_ref().map_or_else(gone, |row| details(row, fit));
            popup(frame, &brief(&self::name(name)), text);
        }
        Mode::Confirm(held) => {
            let name = brief(&name(&held.name));
            let text = format!(
                "Take {name} away from {} ({})?\n\nThe holder may still be at work. It learns of the loss about a \
                 second later, or on a Redis Cluster at its next renewal.\n\ny: release it    n: leave it",
                brief(&holder(held)),
                held.holder.id.as_str().chars().take(8).collect::<String>(),
            );
            popup(frame, "release by force", text);
        }
        Mode::Table | Mode::Filter => {}
    }
}

fn name(text: &str) -> String {
    escaped(&cut(text, LONGEST))
}

/// Shortens a message, or names that are escaped already.
fn short(text: &str) -> String {
    printable(&cut(text, LONGEST))
}

/// Shortens an escaped name to at most one line, so that the rest of a question stays visible.
fn brief(name: &str) -> String {
    cut(name, BRIEF)
}

fn heading(latest: &Latest, wrong: Style) -> Vec<Line<'static>> {
    let Some(seen) = &latest.seen else {
        let asked = latest.asked.map_or(Duration::ZERO, |asked| asked.elapsed());
        let said = latest.problem.as_deref().map_or_else(|| format!("asking for {}", length(asked)), short);
        return vec![Line::from("redlock top"), Line::from(said)];
    };
    let nodes = seen.health.nodes();
    let well = nodes.iter().filter(|node| node.problem.is_none()).count();
    let server = |(node, round): (&redlock_sync::NodeHealth, &Option<Duration>)| match (&node.problem, round) {
        (None, Some(round)) => format!("{} {:.1}ms", printable(&node.address), round.as_secs_f64() * 1000.0),
        (None, None) => format!("{} no answer", printable(&node.address)),
        (Some(why), _) => format!("{} DOWN: {}", printable(&node.address), short(why)),
    };
    let servers: Vec<String> = nodes.iter().zip(&seen.round_trips).map(server).collect();
    let first = format!("{well} of {} servers well | {}", nodes.len(), servers.join(" | "));
    let is_well = well == nodes.len();
    let waiting: u64 = {
        let first_of_each = seen.locks.chunk_by(|one, next| one.name == next.name).filter_map(|same| same.first());
        first_of_each.map(|held| held.waiting).sum()
    };
    let (locks, latches, queues) = (seen.locks.len(), seen.latches.len(), seen.queues.len());
    let mut second = vec![format!("holders: {locks}, waiting: {waiting}, latches: {latches}, queues: {queues}")];
    second.push(format!("{} ago", length(latest.age())));
    if seen.left_out > 0 {
        second.push(format!("{} more not shown", seen.left_out));
    }
    if let Some(asked) = latest.asked.filter(|asked| asked.elapsed() > Duration::from_secs(2)) {
        second.push(format!("asking for {}", length(asked.elapsed())));
    }
    if let Some(problem) = &latest.problem {
        second = vec![format!("{} ago", length(latest.age())), short(problem)];
    }
    let second = second.join(" | ");
    let styled = |text: String, is_well: bool| if is_well { Line::from(text) } else { Line::styled(text, wrong) };
    vec![styled(first, is_well), styled(second, latest.problem.is_none())]
}

fn locks(frame: &mut Frame<'_>, screen: &mut Screen, area: Rect) {
    let height = usize::from(area.height.saturating_sub(1));
    screen.show(height);
    let titles = ["LOCK", "KIND", "HOLDER", "HELD FOR", "LEASE LEFT", "WAIT"];
    let visible = screen.rows.iter().enumerate().skip(screen.offset).take(height);
    let (wrong, chosen) = (screen.style(Color::Yellow), Style::new().add_modifier(Modifier::REVERSED));
    let rows = visible.map(|(at, row)| {
        let held = row.held_for.map_or_else(String::new, |held| format!("{}+", length(held)));
        let name = if row.mark.is_empty() { name(&row.name) } else { format!("! {}", name(&row.name)) };
        let last = if row.mark.is_empty() { bar(row) } else { format!("{} {}", bar(row), row.mark) };
        let cells = [name, row.kind.to_owned(), short(&row.holder), held, last, row.waiting.to_string()];
        let style = if row.mark.is_empty() { Style::new() } else { wrong };
        TableRow::new(cells.map(Cell::from)).style(if at == screen.at { style.patch(chosen) } else { style })
    });
    let left = if screen.rows.iter().any(|row| !row.mark.is_empty()) { BAR + 22 } else { BAR + 7 };
    let widths = [
        Constraint::Fill(3),
        Constraint::Length(9),
        Constraint::Fill(2),
        Constraint::Length(8),
        Constraint::Length(u16::try_from(left).unwrap_or(u16::MAX)),
        Constraint::Length(5),
    ];
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Table::new(rows, widths).header(TableRow::new(titles).style(bold)), area);
}

/// A bar with the remaining part of the lease, and the time.
fn bar(row: &Row) -> String {
    let Some(left) = row.left else { return "never ends".to_owned() };
    let Some(lease) = row.lease.filter(|lease| !lease.is_zero()) else { return length(left) };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "small")]
    let full = ((left.as_secs_f64() / lease.as_secs_f64() * BAR as f64).ceil() as usize).min(BAR);
    format!("{}{} {}", "█".repeat(full), "░".repeat(BAR - full), length(left))
}

fn queue_table(seen: &Snapshot) -> Table<'static> {
    let rows = seen.queues.iter().take(MOST_QUEUES).map(|queue| TableRow::new(row(queue)));
    let others = seen.queues.len().saturating_sub(MOST_QUEUES);
    let more = (others > 0).then(|| TableRow::new([format!("and {others} more: give a pattern")]));
    let widths = [Constraint::Fill(1)].into_iter().chain([Constraint::Length(8); 5]);
    let head = TableRow::new(["QUEUE", "TASKS", "DUE", "CLAIMED", "DEAD", "OLDEST"]);
    Table::new(rows.chain(more), widths).header(head.style(Style::new().add_modifier(Modifier::BOLD)))
}

fn footer(screen: &Screen) -> String {
    match &screen.mode {
        Mode::Filter => format!("filter: {}_   Enter: keep it, Esc: none", escaped(&screen.filter)),
        _ if !screen.said.is_empty() => short(&screen.said),
        _ => {
            let filter =
                if screen.filter.is_empty() { String::new() } else { format!(": {}", escaped(&screen.filter)) };
            let order = ORDERS.get(screen.order).map_or("", |(name, _)| name);
            format!("q quit  Enter details  s sort: {order}  / filter{filter}  k release  r now")
        }
    }
}

/// The text about a lock, with at most this many of its holders.
fn details(row: &Row, most: usize) -> String {
    let mut lines = vec![format!("{}    {} wait", row.kind, row.waiting)];
    if !row.mark.is_empty() {
        lines.push(format!("! {}", row.mark));
    }
    if row.holders.is_empty() {
        lines.push(row.holder.clone());
    }
    for held in row.holders.iter().take(most) {
        let first: String = held.holder.id.as_str().chars().take(8).collect();
        let left =
            held.holder.remaining.map_or_else(|| "never ends".to_owned(), |left| format!("{} left", length(left)));
        let (kind, held_for, nodes, of) = (held.kind, length(held.seen_for), held.nodes, held.of);
        lines.push(format!("\n{}", holder(held)));
        lines.push(format!("  {kind}, {first}, held for {held_for} or more, {left}, on {nodes} of {of} servers"));
    }
    if row.holders.len() > most {
        lines.push(format!("\n{} more: `redlock inspect` shows all", row.holders.len() - most));
    }
    lines.push("\nk: release it    Esc: back".to_owned());
    lines.join("\n")
}

fn popup(frame: &mut Frame<'_>, title: &str, text: String) {
    let all = frame.area();
    let (width, most) = (all.width.saturating_sub(4).min(76), all.height.saturating_sub(2));
    // Some lines are wider than the window.
    let height = u16::try_from(text.lines().count() + 4).unwrap_or(u16::MAX).min(most);
    let area = Rect { x: (all.width - width) / 2, y: (all.height - height) / 2, width, height };
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(title.to_owned());
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).block(block), area);
}
