LOCK TABLE "postrider_routes" IN EXCLUSIVE MODE
