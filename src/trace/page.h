/* The parts of the timeline's page, made of src/trace/page by the build. */
#ifndef WEIR_TRACE_PAGE_H
#define WEIR_TRACE_PAGE_H

extern const char trace_page_css[], trace_page_html[], trace_page_js[];

#endif
