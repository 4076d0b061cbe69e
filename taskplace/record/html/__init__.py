"""The HTML report: one self-contained page for a plan, a simulation, a run or a checkpoint.

Reading order: `values` (what a page shows, as one JSON document), `of_plan`, `of_simulation`, `of_run` (make it),
`page` (the file), `live` (serves it). `static/` has the styles and scripts of the page, `vendor/` has uPlot, which
draws the charts.
"""

from taskplace.record.html.of_plan import report_of_plan as report_of_plan
from taskplace.record.html.of_run import RunRecorder as RunRecorder
from taskplace.record.html.of_run import report_of_lines as report_of_lines
from taskplace.record.html.of_simulation import report_of_simulation as report_of_simulation
from taskplace.record.html.page import page as page
from taskplace.record.html.page import write_page as write_page
from taskplace.record.html.values import Report as Report
