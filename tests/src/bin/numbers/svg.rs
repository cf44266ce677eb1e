//! Shapes and colours of a picture. It is as wide as the page of a repository.

use std::fmt::Write;

/// The width of a picture in pixels.
pub(crate) const WIDTH: f64 = 800.0;

/// The colours of a page. Each of them has enough contrast for text on its background.
pub(crate) struct Theme {
    pub(crate) page: &'static str,
    pub(crate) ink: &'static str,
    pub(crate) dim: &'static str,
    pub(crate) grid: &'static str,
    pub(crate) blue: &'static str,
    pub(crate) green: &'static str,
    pub(crate) red: &'static str,
    pub(crate) pale: &'static str,
    /// A process that does not run.
    pub(crate) away: &'static str,
    /// The colour of text on a bar.
    pub(crate) on_bar: &'static str,
}

pub(crate) static LIGHT: Theme = Theme {
    page: "#ffffff",
    ink: "#1f2328",
    dim: "#59636e",
    grid: "#d1d9e0",
    blue: "#0969da",
    green: "#1a7f37",
    red: "#cf222e",
    pale: "#e6eaef",
    away: "#abb4be",
    on_bar: "#ffffff",
};

pub(crate) static DARK: Theme = Theme {
    page: "#0d1117",
    ink: "#f0f6fc",
    dim: "#a3adb8",
    grid: "#3d444d",
    blue: "#58a6ff",
    green: "#56d364",
    red: "#ff7b72",
    pale: "#262c36",
    away: "#454c56",
    on_bar: "#0d1117",
};

#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture that is being drawn.
pub(crate) struct Svg {
    pub(crate) theme: &'static Theme,
    out: String,
}

impl Svg {
    /// Creates an empty picture. `about` describes it in words for screen readers.
    pub(crate) fn new(theme: &'static Theme, height: f64, about: &str) -> Self {
        let mut svg = Self { theme, out: String::new() };
        let box_of = format!("viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\"");
        svg.put(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" {box_of} role=\"img\" \
             font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\">"
        ));
        svg.put(&format!("<title>{}</title>", escape(about)));
        svg.put(&format!("<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{}\"/>", theme.page));
        svg
    }

    pub(crate) fn end(mut self) -> String {
        self.put("</svg>");
        self.out
    }

    fn put(&mut self, line: &str) {
        self.out.push_str(line);
        self.out.push('\n');
    }

    pub(crate) fn title(&mut self, text: &str) {
        self.heading((20.0, 28.0), text);
    }

    pub(crate) fn heading(&mut self, (x, y): (f64, f64), text: &str) {
        let style = format!("font-size=\"16\" font-weight=\"600\" fill=\"{}\"", self.theme.ink);
        self.put(&format!("<text x=\"{x}\" y=\"{y}\" {style}>{}</text>", escape(text)));
    }

    /// Draws text on the page. The text has a halo, so that no line behind it crosses it.
    pub(crate) fn text(&mut self, at: (f64, f64), anchor: Anchor, colour: &str, text: &str) {
        let halo = format!("stroke=\"{0}\" stroke-width=\"4\" fill=\"{0}\" aria-hidden=\"true\"", self.theme.page);
        self.write(at, anchor, &halo, text);
        self.word(at, anchor, colour, text);
    }

    /// Draws text on a bar or in a box.
    pub(crate) fn word(&mut self, at: (f64, f64), anchor: Anchor, colour: &str, text: &str) {
        self.write(at, anchor, &format!("fill=\"{colour}\""), text);
    }

    /// Draws small text on a bar.
    pub(crate) fn small(&mut self, at: (f64, f64), anchor: Anchor, colour: &str, text: &str) {
        self.write(at, anchor, &format!("fill=\"{colour}\" style=\"font-size:11px\""), text);
    }

    fn write(&mut self, (x, y): (f64, f64), anchor: Anchor, paint: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"");
        self.put(&format!("<text {place} font-size=\"13.5\" {paint}>{}</text>", escape(text)));
    }

    /// Draws a bar with its upper left corner at this point.
    pub(crate) fn bar(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
        let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\"", width.max(0.5));
        self.put(&format!("<rect {place} rx=\"3\" fill=\"{colour}\"/>"));
    }

    /// Draws the outline of a bar in dashes.
    pub(crate) fn hollow(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
        let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"");
        self.put(&format!(
            "<rect {place} rx=\"3\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"4 3\"/>"
        ));
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        self.stroke(from, to, colour, "");
    }

    pub(crate) fn dashes(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        self.stroke(from, to, colour, " stroke-dasharray=\"4 3\"");
    }

    fn stroke(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, rest: &str) {
        let place = format!("x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"", from.0, from.1, to.0, to.1);
        self.put(&format!("<line {place} stroke=\"{colour}\" stroke-width=\"1.5\"{rest}/>"));
    }

    /// Draws a line with an arrowhead at its end.
    pub(crate) fn arrow(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        self.line(from, to, colour);
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy).max(1.0);
        let (ux, uy) = (dx / length * 8.0, dy / length * 8.0);
        let (left, right) =
            ((to.0 - ux - uy / 2.0, to.1 - uy + ux / 2.0), (to.0 - ux + uy / 2.0, to.1 - uy - ux / 2.0));
        let corners = [to, left, right].map(|(x, y)| format!("{x:.1},{y:.1}")).join(" ");
        self.put(&format!("<polygon points=\"{corners}\" fill=\"{colour}\"/>"));
    }

    pub(crate) fn dot(&mut self, (x, y): (f64, f64), radius: f64, colour: &str) {
        self.put(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\" fill-opacity=\"0.75\"/>"
        ));
    }

    /// Draws a cross, which marks an end. It has a halo.
    pub(crate) fn cross(&mut self, (x, y): (f64, f64), colour: &str) {
        let mut path = String::new();
        for (dx, dy) in [(-6.0, -6.0), (-6.0, 6.0)] {
            let ends = (x + dx, y + dy, x - dx, y - dy);
            write!(path, "M{:.1} {:.1}L{:.1} {:.1}", ends.0, ends.1, ends.2, ends.3)
                .expect("a string takes everything");
        }
        for (paint, wide) in [(self.theme.page, 6), (colour, 3)] {
            let style = format!("stroke=\"{paint}\" stroke-width=\"{wide}\" stroke-linecap=\"round\"");
            self.put(&format!("<path d=\"{path}\" {style}/>"));
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
