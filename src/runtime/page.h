/* The parts of the timeline's page, made of src/runtime/page by the build. */
#ifndef WEIR_RUNTIME_PAGE_H
#define WEIR_RUNTIME_PAGE_H

extern const char rt_page_css[], rt_page_html[], rt_page_js[];

#endif
