// Everything in it is part of the dialect already.
#pragma once
#include "simt.h"
