#include "gateway/functions_page.h"

namespace sluice {

// Made from page/functions.html by the build.
extern const std::string_view kFunctionsPageText;

std::string_view functions_page_html() { return kFunctionsPageText; }

}  // namespace sluice
