//! The feed of orders, and the goods, from the CSV files in `examples/data/`.

use std::error::Error;

/// The files are part of the program, so that the example runs from any directory.
const ORDERS: &str = include_str!("../data/orders.csv");
const GOODS: &str = include_str!("../data/stock.csv");

/// One line of the feed that has the form of an order.
#[derive(Debug)]
pub(crate) struct Line {
    /// The position of the line in the feed. It identifies the line, since several lines can have the same order.
    pub(crate) number: usize,
    pub(crate) order: String,
    pub(crate) customer: String,
    pub(crate) sku: String,
    pub(crate) quantity: u32,
}

/// Returns all usable lines, and the number of unusable ones.
pub(crate) fn read() -> Result<(Vec<Line>, usize), csv::Error> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(ORDERS.as_bytes());
    let records = reader.records().collect::<Result<Vec<_>, _>>()?;
    let lines: Vec<Line> = records.iter().enumerate().filter_map(|(i, record)| line(i, record)).collect();
    let unusable = records.len() - lines.len();
    Ok((lines, unusable))
}

/// Parses a line. Returns `None` if it has too few or too many fields, an empty field, or an invalid quantity.
fn line(number: usize, record: &csv::StringRecord) -> Option<Line> {
    let fields: Vec<&str> = record.iter().collect();
    let [order, customer, sku, quantity] = fields[..] else { return None };
    let quantity = quantity.parse().ok().filter(|&quantity| quantity > 0)?;
    if order.is_empty() || sku.is_empty() {
        return None;
    }
    Some(Line { number, order: order.into(), customer: customer.into(), sku: sku.into(), quantity })
}

/// The stock of the shop at the beginning: pairs of SKU and units.
pub(crate) fn goods() -> Result<Vec<(String, u32)>, Box<dyn Error>> {
    let mut reader = csv::Reader::from_reader(GOODS.as_bytes());
    reader.records().map(|record| goods_line(&record?)).collect()
}

fn goods_line(record: &csv::StringRecord) -> Result<(String, u32), Box<dyn Error>> {
    let fields: Vec<&str> = record.iter().collect();
    let [sku, units] = fields[..] else { return Err("stock.csv: not two fields".into()) };
    Ok((sku.to_owned(), units.parse()?))
}
